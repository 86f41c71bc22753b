// This tab as a client: the protocol in JSON over a WebSocket, as docs/protocol.md has it.

import { get, inPath, publish } from "./api.js";
import { h, ms, put, say } from "./dom.js";

const SUBPROTOCOL = "roskva.v1.json";
const KEPT = 50;

export function tryPage(main, about) {
  const object = h("input", { id: "wanted", value: about || "demo/hello", required: true, pattern: "[a-z0-9\\-]{1,63}/.+", autocomplete: "off", spellcheck: "false" });
  const credential = h("input", { id: "credential", type: "password", autocomplete: "off" });
  const secret = h("div", { class: "field", hidden: true }, h("label", { for: "credential" }, "A JWT of the app"), credential);
  const button = h("button", { class: "primary" }, "Subscribe");
  const state = h("p", { role: "status", class: "soft" }, "This tab is not connected.");
  const log = h("ol", { class: "log", "aria-live": "polite", "aria-label": "What this tab was told", tabindex: 0 });
  const nothing = h("li", { class: "soft" }, "Nothing yet. Subscribe, then publish.");
  const publishing = h("div", { hidden: true });
  const codes = h("div", { class: "codes" });
  log.append(nothing);
  let client = null;
  let last = null;
  let publishedAt = null;
  let assigned = false;

  const form = h("form", { class: "ask", onsubmit: (event) => {
    event.preventDefault();
    if (client) stop();
    else start();
  } }, h("div", { class: "field" }, h("label", { for: "wanted" }, "Object"), object), secret, button);
  const publishButton = h("button", { type: "button", disabled: true, onclick: send }, "Publish the next version");
  publishing.append(publishButton);
  const intro = h("p", { class: "sentence" }, "Subscribe this browser tab to an object, and watch a notification arrive.");
  const here = h("div", {}, form, state, publishing, h("h2", { class: "gap" }, "What this tab was told"), log);
  main.append(h("h1", {}, "Try it"), intro,
    h("section", { class: "two" }, here, h("div", {}, h("h2", {}, "The same, in your program"), codes)));
  object.addEventListener("input", () => put(codes, [object.value], () => examples(object.value, settings)));
  let settings = null;

  function write(text, told) {
    nothing.remove();
    log.prepend(h("li", { class: told && "told" }, text, h("time", {}, new Date().toLocaleTimeString("en-GB"))));
    while (log.children.length > KEPT) log.lastChild.remove();
  }

  function start() {
    last = null;
    client = connect(object.value.trim(), credential.value, {
      async registered() {
        say(state, "Connected and registered. It stays so while this page is open.");
        assigned = (await get(`objects/${inPath(object.value.trim())}`)).assigned;
        publishButton.disabled = client === null;
      },
      told(name, version, payload) {
        last = version;
        const took = publishedAt === null ? "" : `, ${ms(performance.now() - publishedAt)} after it was published`;
        publishedAt = null;
        write(version === null ? `${name}: version unknown, go and look` : `${name} is at version ${version}${payload ? `: ${payload}` : ""}${took}`, true);
      },
      refused: (text) => write(text),
      ended(text) {
        say(state, text);
        stop();
      },
    });
    say(state, "Connecting…");
    button.textContent = "Unsubscribe";
    object.readOnly = true;
  }

  function stop() {
    client?.close();
    if (client) say(state, "This tab is not connected.");
    client = null;
    button.textContent = "Subscribe";
    object.readOnly = false;
    publishButton.disabled = true;
  }

  async function send() {
    publishedAt = performance.now();
    try {
      const version = await publish(object.value.trim(), assigned ? null : String(BigInt(last ?? "0") + 1n));
      write(`Published version ${version}: it is in the feed.`);
    } catch (error) {
      publishedAt = null;
      write(`Not published: ${error.message}`);
    }
  }

  return {
    leave: stop,
    async look() {
      if (settings) return;
      settings = await get("now");
      publishing.hidden = !settings.development;
      secret.hidden = settings.development;
      if (!settings.clients_here) {
        say(state, "This is the admin port, where no clients connect. Open the console on the node's own port to try it.");
        button.disabled = true;
      }
      put(codes, [object.value], () => examples(object.value, settings));
    },
  };
}

function connect(object, credential, on) {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`, SUBPROTOCOL);
  const nonce = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(12))));
  let session = null;
  let number = 0;
  let over = false;
  const send = (message) => socket.send(JSON.stringify({ v: "1.0", ...message }));
  const say = (parts) => send({ type: "client", session, number: String(++number), ...parts });

  socket.onopen = () => send({ type: "hello", nonce, app: object.split("/")[0], ...(credential ? { credential } : {}) });
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.grant?.nonce === nonce && session === null) {
      session = message.session;
      say({ operations: [[object, true]] });
    }
    for (const [name, version, epoch, payload] of message.notifications ?? []) {
      on.told(name, version, payload ? new TextDecoder().decode(Uint8Array.from(atob(payload), (c) => c.charCodeAt(0))) : "");
      say({ acks: [[name, version, epoch]] });
    }
    for (const [name, registered, , code] of message.statuses ?? []) {
      if (registered) on.registered();
      else if (code) on.refused(`${name} was refused: ${code}`);
    }
    if (message.error) on.refused(`${message.error.code}${message.error.text ? `: ${message.error.text}` : ""}`);
  };
  socket.onclose = () => {
    if (!over) on.ended("The connection ended. Subscribe again.");
  };
  return {
    close() {
      over = true;
      socket.close();
    },
  };
}

function examples(object, settings) {
  const [app, ...rest] = object.split("/");
  const name = rest.join("/");
  const { origin, hostname } = location;
  const ws = origin.replace(/^http/, "ws");
  const shown = [
    ["Python", `import asyncio
import roskva

async def main():
    url = "${ws}"
    client = roskva.Client(url, app="${app}", auto_ack=True)
    async with client:
        await client.register("${name}")
        async for event in client:
            print(event)

asyncio.run(main())`],
    ["curl", `curl -NG ${origin}/v1/events \\
  -d object=${object}

curl ${origin}/v1/publish --json \\
  '{"app": "${app}", "name": "${name}", "version": 1}'`],
    ["MQTT", settings?.mqtt_port ? `mosquitto_sub -h ${hostname} -p ${settings.mqtt_port} -q 1 -t '${object}'` : "MQTT is off on this node."],
  ];
  return shown.map(([title, code]) => h("div", {},
    h("div", { class: "head" }, h("h3", {}, title), h("button", { type: "button", "aria-label": `Copy the code for ${title}`, onclick: (event) => copy(event.target, code) }, "Copy")),
    h("pre", { tabindex: 0, "aria-label": `Code for ${title}` }, h("code", {}, code))));
}

async function copy(button, code) {
  await navigator.clipboard.writeText(code).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
