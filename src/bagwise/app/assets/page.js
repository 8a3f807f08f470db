// What happens in the browser: fields and sliders keep step, links restore, uploads are sent.
(function () {
  "use strict";
  const FIELDS = ["rows", "features", "snr", "noise", "epsilon", "lo", "hi", "bag_size", "rho"];
  const LARGEST = 32 * 2 ** 20;
  const tell = (id, props) => window.dash_clientside.set_props(id, props);
  const at = (id) => document.getElementById(id);
  const none = () => window.dash_clientside.no_update;
  const now = { fields: {}, best: {}, stops: {}, link: "", touched: new Set() };

  const text = (number) => String(Number(Number(number).toPrecision(12)));

  // The stop that lies nearest, in the order in which they stand.
  function nearest(stops, value) {
    let found = 0;
    for (let i = 1; i < stops.length; i++) {
      if (Math.abs(stops[i] - value) < Math.abs(stops[found] - value)) found = i;
    }
    return found;
  }

  // Where a slider stands: at its field, or at the best where that is empty.
  function place(name) {
    const said = now.fields[name];
    const empty = said === "" || said === null || said === undefined;
    const value = empty ? now.best[name] : Number(said);
    const stops = now.stops[name] || [];
    return Number.isFinite(value) ? nearest(stops, value) : null;
  }

  // Told and typed too, or a field that still waits for a pause in typing would tell its old text.
  function write(name, said) {
    const field = at(name);
    tell(name, { value: said });
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, said);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // A slider sets its field only when a hand moves it. Told to follow, it knows less than the field,
  // which may be empty or hold what is no number.
  document.addEventListener("input", ({ target }) => {
    const { id } = target.closest("[id]") || target;
    const name = id.replace(/-slider$/, "");
    if (name === id) now.touched.add(name);
    else if (now.stops[name]) write(name, text(now.stops[name][Number(target.value)]));
  });
  // Who goes back to a link wants all of it.
  window.addEventListener("popstate", () => now.touched.clear());

  function describe(name) {
    const slider = at(name + "-slider");
    if (!slider) return;
    const label = document.querySelector(`label[for="${name}"]`).firstChild.textContent;
    slider.setAttribute("aria-label", label + ", slider");
    const said = now.fields[name];
    const best = now.best[name];
    const value = said || (best === undefined ? "not set" : "best: " + Number(best).toPrecision(3));
    slider.setAttribute("aria-valuetext", value);
    at(name).setAttribute("aria-describedby", name + "-error");
  }

  function makeUpload() {
    const box = at("upload");
    if (!box || box.firstChild) return;
    const label = document.createElement("label");
    label.htmlFor = "release";
    label.textContent = "Release folder as .zip, at most 32 MiB";
    const field = document.createElement("input");
    Object.assign(field, { type: "file", id: "release", accept: ".zip,application/zip" });
    field.addEventListener("change", () => send(field));
    box.append(label, field);
  }

  async function send(field) {
    const file = field.files[0];
    if (!file) return;
    let found;
    if (file.size > LARGEST) {
      found = { error: "the upload must be at most 32 MiB. Release features='statistics' instead." };
    } else {
      tell("estimate", { children: "Reading the release …" });
      try {
        const answer = await fetch("/api/snr", { method: "POST", body: file });
        found = await answer.json();
      } catch (_) {
        found = { error: "The upload got no answer: check the file, then send it again." };
      }
    }
    field.value = "";
    tell("found", { data: found });
  }

  function sentence(found) {
    if (found.error) return found.error;
    const three = (x) => (x === null ? "more than can be told" : Number(x.toPrecision(3)).toString());
    return `${found.rows.toLocaleString("en")} rows in ${found.bags.toLocaleString("en")} bags: ` +
      `SNR ${three(found.snr)} (95 % interval ${three(found.snr_low)} to ${three(found.snr_high)}), ` +
      `noise ${three(found.noise)}, the noise that protects labels taken out.`;
  }

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (_) {
      // Without https browsers have no clipboard but this.
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      const done = document.execCommand("copy");
      box.remove();
      return done;
    }
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    page: {
      // A link sets what it names and empties the rest; without one, or with that which the page
      // wrote itself, nothing changes. What was set while it was read is newer.
      restore(search) {
        const names = [...FIELDS, "private"];
        const asked = new URLSearchParams(search || "");
        if (search === now.link || !FIELDS.some((name) => asked.has(name))) return names.map(none);
        const values = FIELDS.map((name) => (asked.get(name) || "").slice(0, 40));
        if (!asked.has("noise")) values[FIELDS.indexOf("noise")] = "1";
        const open = !asked.has("epsilon");
        if (open) values[FIELDS.indexOf("epsilon")] = "1";
        const found = [...values, open ? [] : ["yes"]];
        return found.map((value, i) => (now.touched.has(names[i]) ? none() : value));
      },

      typed(...values) {
        now.stops = values.pop();
        now.best = values.pop() || {};
        const closed = (values.pop() || []).length > 0;
        FIELDS.forEach((name, i) => {
          now.fields[name] = values[i];
          const stop = place(name);
          if (stop !== null) tell(name + "-slider", { value: stop });
          describe(name);
        });
        for (const name of ["bag_size", "rho"]) {
          const best = now.best[name];
          if (best !== undefined) tell(name, { placeholder: "best: " + Number(Number(best).toPrecision(2)) });
        }
        for (const id of ["epsilon", "epsilon-slider"]) tell(id, { disabled: !closed });
        makeUpload();
        return none();
      },

      linked(query) {
        if (!query) return [none(), none()];
        now.link = "?" + query;
        window.history.replaceState(window.history.state, "", window.location.pathname + now.link);
        return ["/api/plan?" + query, "/api/commands?" + query];
      },

      follow(clicks) {
        if (clicks) for (const name of ["bag_size", "rho"]) write(name, "");
        return none();
      },

      async copy(clicks) {
        if (!clicks) return none();
        const done = await copyText(window.location.href);
        tell("copied", { children: done ? "Copied." : "Copy it from the address bar." });
        return none();
      },

      faulty(...errors) {
        FIELDS.forEach((name, i) => at(name) && at(name).setAttribute("aria-invalid", String(!!errors[i])));
        return none();
      },

      use(clicks, found) {
        const asked = window.dash_clientside.callback_context.triggered.map((t) => t.prop_id);
        if (found && asked.includes("found.data")) {
          tell("estimate", { children: sentence(found) });
          tell("offer", { hidden: !!found.error });
        }
        if (clicks && found && asked.includes("use.n_clicks")) {
          const digits = (x) => text(Number(x).toPrecision(4));
          for (const name of ["rows", "features", "lo", "hi", "bag_size"]) write(name, text(found[name]));
          for (const name of ["snr", "noise"]) write(name, digits(found[name]));
          write("rho", "");
          tell("private", { value: found.epsilon === null ? [] : ["yes"] });
          if (found.epsilon !== null) write("epsilon", text(found.epsilon));
        }
        return none();
      },
    },
  });
})();
