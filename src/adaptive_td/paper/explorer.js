// A map of the state space to choose from: problem, model, method, episodes, and what to show.
(function (root, data) {
  const names = ["problem", "model", "method", "episodes", "show"];
  const selects = Object.fromEntries(names.map((n) => [n, root.querySelector(`[name=${n}]`)]));
  const plot = root.querySelector(".map");

  function decode(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return Array.from(new Float32Array(bytes.buffer));
  }

  function fill(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
    if (options.some(([value]) => value === before)) select.value = before;
  }

  const key = () => names.slice(0, 4).map((n) => selects[n].value).join("|");
  const distinct = (k, given) => {
    const fits = Object.keys(data.cells).map((c) => c.split("|"))
      .filter((c) => given.every((n, i) => c[i] === selects[n].value));
    return [...new Set(fits.map((c) => c[k]))].map((v) => [v, data.labels[v] || v]);
  };

  function offered() {
    names.slice(0, 4).forEach((n, k) => fill(selects[n], distinct(k, names.slice(0, k))));
    const shows = [["values", "estimate V(s)"], ["error", "error V(s) − v(s)"], ["truth", "true value v(s)"]];
    if (data.cells[key()].lower) {
      shows.push(["quality", "interval against the truth"], ["outside", "V(s) against its interval"]);
      shows.push(["width", "width of the interval"]);
    }
    fill(selects.show, shows);
  }

  function shown(problem, cell, show) {
    const truth = decode(problem.truth), values = decode(cell.values);
    const side = (x, low, high) => x.map((v, i) => (v > high[i] ? 1 : v < low[i] ? -1 : 0));
    if (show === "truth") return truth;
    if (show === "values") return values;
    if (show === "error") return values.map((v, i) => v - truth[i]);
    const low = decode(cell.lower), high = decode(cell.upper);
    if (show === "width") return high.map((h, i) => h - low[i]);
    return show === "outside" ? side(values, low, high) : side(truth, low, high).map((s) => -s);
  }

  function draw() {
    offered();
    const problem = data.problems[selects.problem.value], show = selects.show.value;
    const flat = shown(problem, data.cells[key()], show), columns = problem.x.length;
    const z = problem.y.map((_, row) => flat.slice(row * columns, (row + 1) * columns));
    const trace = { type: "heatmap", x: problem.x, y: problem.y, z, colorbar: { title: { text: problem.unit } } };
    trace.hovertemplate = `${problem.labels[0]} %{x:.3g}<br>${problem.labels[1]} %{y:.3g}<br>%{z:.4g}<extra></extra>`;
    if (show === "quality" || show === "outside") {
      const words = show === "quality" ? ["too low", "holds the truth", "too high"] : ["below", "inside", "above"];
      const steps = [["#5E3C99", 0], ["#F7F7F7", 1], ["#E66101", 2]];
      trace.colorscale = steps.flatMap(([c, k]) => [[k / 3, c], [(k + 1) / 3, c]]);
      Object.assign(trace, { zmin: -1.5, zmax: 1.5, colorbar: { tickvals: [-1, 0, 1], ticktext: words } });
    } else if (show === "error") {
      const limit = Math.max(...flat.map(Math.abs));
      Object.assign(trace, { colorscale: data.diverging, zmin: -limit, zmax: limit });
    } else {
      trace.colorscale = "Viridis";
    }
    const lines = problem.walls.map(([x0, y0, x1, y1]) => ({ type: "line", x0, y0, x1, y1, line: { width: 4 } }));
    const discs = problem.discs.map(([x, y, r]) => ({
      type: "circle", x0: x - r, y0: y - r, x1: x + r, y1: y + r, line: { width: 2, dash: "dot" },
    }));
    const axis = { constrain: "domain", title: { text: problem.labels[1] } };
    const layout = {
      height: 460, margin: { t: 10, b: 50 }, shapes: [...lines, ...discs],
      xaxis: { title: { text: problem.labels[0] }, constrain: "domain" },
      yaxis: problem.square ? { ...axis, scaleanchor: "x" } : axis,
    };
    Plotly.react(plot, [trace], layout, { displaylogo: false, responsive: true });
    root.querySelector(".msve").textContent = data.cells[key()].told;
  }

  names.forEach((n) => selects[n].addEventListener("change", draw));
  draw();
})(document.currentScript.parentElement, JSON.parse(document.currentScript.parentElement.dataset.maps));
