"use strict";

// Names of files and classes reach the page as text content alone, never as markup.
const $ = (id) => document.getElementById(id);
const percent = (p) => `${(100 * p).toFixed(1)} %`;
const megabytes = (bytes) => `${bytes / 1e6} MB`;
const images = (n) => `${n.toLocaleString("en")} training image${n === 1 ? "" : "s"}`;
const GROUPS = {
  many: "one of the classes with many (more than 100)",
  medium: "one of the classes with a medium number (20 to 100)",
  few: "one of the classes with few (less than 20)",
};
let limit = Infinity;
let latest = 0; // of several pictures the last one is shown

fetch("health").then((reply) => reply.json()).then((facts) => {
  limit = facts.limit_bytes;
  $("model").textContent =
    `${facts.dataset}, trained by ${facts.method}: ${facts.classes.toLocaleString("en")} classes, ` +
    `${images(facts.train_images)}` +
    (facts.prior ? `; predicts for the class mix ${facts.prior}` : "");
  $("limit").textContent = `at most ${megabytes(limit)}; it does not leave this computer`;
});

async function ask(file) {
  const number = ++latest;
  $("error").hidden = true;
  $("result").classList.add("busy");
  let table;
  try {
    if (file.size > limit) throw new Error(`the file is larger than ${megabytes(limit)}`);
    const reply = await fetch("predict", { method: "POST", body: file });
    table = await reply.json();
    if (!reply.ok) throw new Error(table.error);
  } catch (error) {
    if (number === latest) refuse(file, error);
    return;
  }
  if (number === latest) show(file, table);
}

function refuse(file, error) {
  const gone = error instanceof TypeError;
  const why = gone ? "the server does not answer; is wcdas serve still running?" : error.message;
  $("error").textContent = `${file.name}: ${why}`;
  $("error").hidden = false;
  $("result").hidden = true;
}

function show(file, table) {
  const best = table.top[0];
  const picture = $("picture");
  URL.revokeObjectURL(picture.src);
  picture.hidden = false;
  picture.onerror = () => { picture.hidden = true; }; // such as TIFF, which browsers do not show
  picture.src = URL.createObjectURL(file);
  picture.alt = file.name;
  $("name").textContent = file.name;
  const unsure = table.status === "unsure";
  $("answer").textContent = unsure ? "Unsure" : table.answer;
  $("sure").textContent = unsure
    ? `The most probable class has ${percent(best.probability)}, too little for an answer.`
    : `The model is ${percent(best.probability)} sure.`;
  $("group").textContent = unsure
    ? ""
    : `It is ${GROUPS[best.group]} training images: it had ${best.train_images.toLocaleString("en")}.` +
      (best.group === "few" ? " Expect more mistakes here." : "");
  $("top").replaceChildren(...table.top.map(row));
  $("result").hidden = false;
  $("result").classList.remove("busy");
}

function row(guess) {
  const item = document.createElement("li");
  const line = document.createElement("div");
  const [name, number, bar, note] = ["span", "span", "progress", "small"].map((tag) =>
    document.createElement(tag));
  name.textContent = guess.class;
  number.textContent = percent(guess.probability);
  number.className = "percent";
  bar.max = 1;
  bar.value = guess.probability;
  bar.setAttribute("aria-label", `${guess.class}: ${percent(guess.probability)}`);
  note.textContent = `${guess.group}, ${images(guess.train_images)}`;
  line.append(name, number);
  item.append(line, bar, note);
  return item;
}

$("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) ask(file);
  event.target.value = ""; // the same file can be chosen again
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  // On the whole page, so that a picture dropped beside the field does not replace the page.
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    const [file] = kind === "drop" ? event.dataTransfer.files : [];
    if (file) ask(file);
  });
}

const dark = () => document.documentElement.style.colorScheme === "dark";
function theme(name) {
  document.documentElement.style.colorScheme = name;
  $("theme").textContent = name === "dark" ? "Light mode" : "Dark mode";
}
theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
$("theme").addEventListener("click", () => theme(dark() ? "light" : "dark"));
