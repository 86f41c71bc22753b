from hypothesis import settings

settings.register_profile("core", deadline=None, max_examples=60)
settings.load_profile("core")
