"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const number = (value) =>
    value === null || value === undefined ? "–"
      : Number(value).toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: value >= 1e4 });
  const cell = (column, row) => {
    const value = column.values[row];
    if (column.kind === "text") return value ?? "";
    if (column.kind === "class") return value === null ? "" : data.classes[value];
    if (value === null) return "–";
    if (column.kind === "percent") return value.toFixed(1);
    if (column.kind === "change") return (value > 0 ? "+" : "") + value.toFixed(1);
    if (column.kind === "rho") return value.toFixed(3);
    return value.toLocaleString("en");
  };

  // Theme: what the system wants until the reader chooses.
  const themes = ["auto", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let theme = "auto";
  try { theme = localStorage.getItem("wcdas-theme") ?? "auto"; } catch { /* not kept */ }
  if (!themes.includes(theme)) theme = "auto";
  let onPaper = false; // which is white, whatever the screen is
  const isDark = () => !onPaper && (theme === "dark" || (theme === "auto" && system.matches));
  const dress = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    button.textContent = "Theme: " + theme;
    for (const chart of drawn.values()) chart.redraw();
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("wcdas-theme", theme); } catch { /* not kept */ }
    dress();
  });
  system.addEventListener("change", dress);

  // Charts.
  const symbols = ["circle", "rect", "triangle", "diamond", "roundRect", "pin"];
  const strokes = { true: "path://M0,0h9v3h-9zM15,0h9v3h-9z", false: "path://M0,0h24v3h-24z" }; // dashed
  const bare = (series) => series.kind === "steps" || (series.kind === "line" && series.x.length > 40);
  const most = 1000; // rows of a table without pages
  let showClasses = () => {};
  const drawn = new Map();
  let found = null; // the classes a search has found; null: all
  const probe = document.body.appendChild(element("span", "", "hidden"));
  const colour = (name) => { // as the theme resolves it
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };

  const axis = (given, vertical) => ({
    type: given.log ? "log" : "value",
    name: given.label, nameLocation: "middle", nameGap: vertical ? 44 : 28,
    min: given.log ? undefined : given.low ?? undefined,
    max: given.log ? undefined : given.high ?? undefined,
    scale: !given.numbers,
    nameTextStyle: { color: colour("--text"), fontSize: 13 },
    axisLabel: { show: given.numbers, color: colour("--soft"), hideOverlap: true },
    axisTick: { show: given.numbers },
    axisLine: { show: given.numbers, lineStyle: { color: colour("--line") } },
    splitLine: { show: given.numbers, lineStyle: { color: colour("--faint") } },
  });

  const tip = (chart, series, index) => {
    const box = element("div", undefined, "tip");
    const line = (text) => box.append(element("div", text));
    const of = series.classes?.[index];
    if (of !== undefined && of !== null) {
      box.append(element("strong", data.classes[of]));
      if (series.notes) line(series.notes[index]);
      else {
        if (data.runs > 1) line(series.name);
        for (const column of data.columns.slice(1)) line(`${column.title}: ${cell(column, of)}`);
      }
    } else {
      box.append(element("strong", series.name));
      line(`${chart.x.label}: ${number(series.x[index])}`);
      line(`${chart.y.label}: ${number(series.y[index])}`);
      if (series.notes) line(series.notes[index]);
    }
    return box;
  };

  const option = (chart, width = innerWidth) => {
    const palette = data.palettes[isDark() ? "dark" : "light"];
    const many = chart.series.length;
    const across = width < 600 ? 2 : width < 900 ? 4 : 6; // names in a row of the legend
    return {
      animation: false,
      textStyle: { fontFamily: "system-ui, sans-serif" },
      grid: { left: 62, right: 18, top: many > 1 ? 24 + 22 * Math.ceil(many / across) : 24, bottom: 48 },
      legend: {
        show: many > 1, type: many > 12 ? "scroll" : "plain", top: 0, left: 0, itemGap: 14,
        itemWidth: chart.series.every((series) => series.kind === "points") ? 11 : 24, itemHeight: 11,
        textStyle: { color: colour("--text"), width: width < 600 ? 150 : 180, overflow: "truncate" },
        data: chart.series.map((series) => ({ name: series.name, ...(bare(series) && { icon: strokes[series.dashed] }) })),
      },
      tooltip: {
        trigger: "item", confine: true, backgroundColor: colour("--card"), borderColor: colour("--line"),
        textStyle: { color: colour("--text"), fontSize: 13 }, extraCssText: "max-width:18rem;white-space:normal",
        formatter: (at) => tip(chart, chart.series[at.seriesIndex], at.dataIndex),
      },
      xAxis: axis(chart.x, false),
      yAxis: axis(chart.y, true),
      series: chart.series.map((series, i) => {
        const ink = palette[series.colour % palette.length];
        const symbol = symbols[series.colour % symbols.length];
        const points = series.x.map((x, at) => {
          const of = series.classes?.[at];
          const dim = found && of !== undefined && !found.has(of);
          const lit = found && of !== undefined && found.has(of);
          const value = [x, series.y[at]];
          if (dim) return { value, itemStyle: { opacity: 0.08 } };
          return lit ? { value, symbolSize: 13, itemStyle: { opacity: 1 } } : value;
        });
        const look = {
          name: series.name, data: points, itemStyle: { color: ink }, symbol,
          markLine: i === 0 && chart.marks.length > 1 ? {
            silent: true, symbol: "none", lineStyle: { color: colour("--line"), type: "dotted" },
            label: { color: colour("--soft"), position: "end", formatter: (m) => m.name, align: "left", padding: [0, 0, 0, 4] },
            data: chart.marks.map(([x, name]) => ({ xAxis: x, name })),
          } : undefined,
        };
        if (series.kind === "points") {
          const size = points.length > 2000 ? 5 : points.length > 300 ? 7 : 11;
          return { ...look, type: "scatter", symbolSize: size, itemStyle: { color: ink, opacity: 0.75 } };
        }
        if (series.kind === "bars") return { ...look, type: "bar", barWidth: "90%" };
        return {
          ...look, type: "line", step: series.kind === "steps" ? "middle" : false, symbolSize: 7,
          showSymbol: !bare(series), connectNulls: true, triggerLineEvent: false,
          lineStyle: { color: ink, width: 2.2, type: series.dashed ? "dashed" : "solid" },
        };
      }),
    };
  };

  const draw = (place) => {
    const chart = data.charts[place.dataset.chart];
    const instance = echarts.init(place, null, { renderer: "canvas" });
    const redraw = () => instance.setOption(option(chart), { notMerge: true });
    redraw();
    drawn.set(chart.name, { redraw, chart });
    new ResizeObserver(() => { if (place.clientWidth) instance.resize(); }).observe(place);
    let at = null; // [series, index] the keyboard is at
    const go = (series, index) => {
      const count = chart.series[series].x.length;
      if (!count) return;
      at = [series, Math.max(0, Math.min(index, count - 1))];
      const where = { seriesIndex: at[0], dataIndex: at[1] };
      instance.dispatchAction({ type: "downplay" });
      instance.dispatchAction({ type: "highlight", ...where });
      instance.dispatchAction({ type: "showTip", ...where });
      const said = tip(chart, chart.series[at[0]], at[1]);
      const lines = [chart.series[at[0]].name, ...Array.from(said.children, (line) => line.textContent)];
      document.getElementById("spoken").textContent = [...new Set(lines)].join(", ");
    };
    const leave = () => {
      at = null;
      instance.dispatchAction({ type: "downplay" });
      instance.dispatchAction({ type: "hideTip" });
    };
    place.addEventListener("keydown", (event) => {
      const [series, index] = at ?? [0, -1];
      const last = chart.series.length - 1;
      const moves = {
        ArrowRight: () => go(series, index + 1), ArrowLeft: () => go(series, index - 1),
        ArrowDown: () => go(Math.min(series + 1, last), 0), ArrowUp: () => go(Math.max(series - 1, 0), 0),
        Home: () => go(series, 0), End: () => go(series, Infinity), Escape: leave,
      };
      if (moves[event.key]) { moves[event.key](); event.preventDefault(); }
    });
    place.addEventListener("blur", leave);
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) { watcher.unobserve(target); draw(target); }
    }
  }, { rootMargin: "300px" });

  // A chart as a file: drawn once more as it is shown, in the colours of the theme.
  for (const files of document.querySelectorAll(".files")) files.hidden = false;
  for (const press of document.querySelectorAll("[data-save]")) {
    press.addEventListener("click", () => {
      const { save: name, kind } = press.dataset;
      const { clientWidth: width, clientHeight: height } = document.getElementById("chart-" + name);
      const renderer = kind === "svg" ? "svg" : "canvas";
      const sheet = echarts.init(element("div"), null, { renderer, width, height });
      sheet.setOption({ ...option(data.charts[name]), backgroundColor: colour("--back") });
      const link = element("a");
      link.download = `${name}.${kind}`;
      link.href = sheet.getDataURL({ type: kind, pixelRatio: 2 });
      link.click();
      sheet.dispose();
    });
  }

  // On paper: every chart drawn for its width and in light colours, what is folded unfolded.
  const size = { width: 680, height: 270 }; // of a chart
  const undo = [];
  const toPaper = () => {
    if (onPaper) return;
    onPaper = true;
    dress();
    for (const room of document.querySelectorAll("[data-chart]")) {
      const paper = element("div", undefined, "paper");
      room.after(paper);
      const printed = echarts.init(paper, null, { renderer: "svg", ...size });
      printed.setOption(option(data.charts[room.dataset.chart], size.width));
      paper.querySelector("svg").setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
      undo.push(() => { printed.dispose(); paper.remove(); });
    }
    for (const folded of document.querySelectorAll("details:not([open], .numbers)")) {
      folded.open = true;
      undo.push(() => { folded.open = false; });
    }
    showClasses();
  };
  const toScreen = () => {
    onPaper = false;
    for (const back of undo.splice(0)) back();
    showClasses();
    dress();
  };
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", toScreen);
  matchMedia("print").addEventListener("change", ({ matches }) => matches ? toPaper() : toScreen());

  // The numbers of a chart, made when they are asked for.
  for (const details of document.querySelectorAll("[data-numbers]")) {
    details.addEventListener("toggle", () => {
      const room = details.querySelector("div");
      if (room.firstChild) return;
      const chart = data.charts[details.dataset.numbers];
      const table = element("table");
      const head = table.createTHead().insertRow();
      const ofClasses = chart.series.some((series) => series.classes);
      const titles = ["series", ...(ofClasses ? ["class"] : []), chart.x.label || "x", chart.y.label || "y"];
      for (const title of titles) head.append(element("th", title));
      const body = table.createTBody();
      let rows = 0;
      for (const series of chart.series) {
        series.x.forEach((x, i) => {
          if (rows++ >= most) return;
          const row = body.insertRow();
          row.append(element("th", series.name));
          if (ofClasses) row.append(element("td", data.classes[series.classes?.[i]] ?? "", "text"));
          row.append(element("td", number(x)), element("td", number(series.y[i])));
        });
      }
      room.append(table);
      if (rows > most) room.append(element("p", `The first ${most} of ${rows} points.`));
    });
  }

  // The table of classes: search, sort, pages.
  const place = document.querySelector("[data-table]");
  if (place) {
    const size = 50;
    const { columns } = data;
    const all = data.classes.map((_, i) => i);
    const lower = data.classes.map((name) => name.toLowerCase());
    let order = { column: columns.findIndex((column) => column.title === "training images"), down: false };
    let rows = all;
    let page = 0;
    const body = place.querySelector("tbody");
    const status = place.querySelector("[role=status]");
    const [back, on] = place.querySelectorAll(".pages button");
    const show = () => {
      const pages = Math.max(1, Math.ceil(rows.length / size));
      page = Math.max(0, Math.min(page, pages - 1));
      const shown = onPaper ? rows.slice(0, most) : rows.slice(page * size, (page + 1) * size);
      body.replaceChildren(...shown.map((row) => {
        const line = element("tr");
        columns.forEach((column, i) => {
          const isText = column.kind === "text" || column.kind === "class";
          const made = element(i ? "td" : "th", cell(column, row), isText ? "text" : "");
          if (!i) made.scope = "row";
          if (column.kind === "change" && column.values[row]) made.className = column.values[row] > 0 ? "good" : "bad";
          line.append(made);
        });
        return line;
      }));
      const part = onPaper && rows.length > most ? `; the first ${most.toLocaleString("en")} of them` : "";
      status.textContent = `${rows.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} classes${part}`;
      place.querySelector(".pages").hidden = pages === 1;
      place.querySelector(".pages span").textContent = `page ${page + 1} of ${pages}`;
      back.disabled = page === 0;
      on.disabled = page === pages - 1;
    };
    const compare = (one, other) => {
      const column = columns[order.column];
      const [a, b] = [one, other].map((row) => column.kind === "class" ? cell(column, row) || null : column.values[row]);
      if (a === null || b === null) return (a === null) - (b === null) || one - other; // unknown last
      const way = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
      return (order.down ? -way : way) || one - other;
    };
    const heads = columns.map((column, i) => {
      const head = element("th", undefined, column.kind === "text" || column.kind === "class" ? "text" : "");
      head.scope = "col";
      const press = element("button", column.title);
      press.type = "button";
      press.addEventListener("click", () => {
        order = { column: i, down: order.column === i ? !order.down : false };
        sort();
      });
      head.append(press);
      return head;
    });
    const row = element("tr");
    row.append(...heads);
    place.querySelector("thead").append(row);
    const sort = () => {
      rows = [...rows].sort(compare);
      page = 0;
      heads.forEach((head, i) => {
        const here = i === order.column;
        head.setAttribute("aria-sort", here ? (order.down ? "descending" : "ascending") : "none");
        head.firstChild.textContent = columns[i].title + (here ? (order.down ? " ▼" : " ▲") : "");
      });
      show();
    };
    let waiting = 0;
    place.querySelector("input").addEventListener("input", (event) => {
      const asked = event.target.value.trim().toLowerCase();
      rows = asked ? all.filter((i) => lower[i].includes(asked)) : all;
      found = asked ? new Set(rows) : null;
      sort();
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        for (const { redraw, chart } of drawn.values()) if (chart.series.some((s) => s.classes)) redraw();
      }, 150);
    });
    for (const press of [back, on]) {
      press.addEventListener("click", () => { page += Number(press.dataset.step); show(); });
    }
    sort();
    showClasses = show;
  }

  dress();
  for (const room of document.querySelectorAll("[data-chart]")) watcher.observe(room);
})();
