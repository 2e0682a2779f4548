"use strict";
// Kusto queries, parsed and checked against tables by Microsoft's own language service.
// usage: node check.cjs TABLES.json FILE...   prints FILE:OFFSET: MESSAGE, exit 1 when there is one
const fs = require("fs");
require("@kusto/language-service-next/bridge.min.js");
require("@kusto/language-service-next/Kusto.Language.Bridge.min.js");
const K = Kusto.Language, S = K.Symbols;
const [tables, ...files] = process.argv.slice(2);
const symbols = Object.entries(JSON.parse(fs.readFileSync(tables, "utf8"))).map(([name, columns]) => {
  const schema = Object.entries(columns).map(([c, t]) => `${c}: ${t}`).join(", ");
  return S.TableSymbol.From(`(${schema})`).WithName(name);
});
const list = new (System.Collections.Generic.List$1(S.Symbol).ctor)();
symbols.forEach((s) => list.add(s));
const database = new S.DatabaseSymbol.$ctor3("workspace", null, list, false);
const globals = K.GlobalState.Default.WithDatabase(database);
let wrong = 0;
for (const file of files) {
  const code = K.KustoCode.ParseAndAnalyze(fs.readFileSync(file, "utf8"), globals);
  const found = code.GetDiagnostics();
  for (let i = 0; i < found.Count; i++) {
    const d = found.getItem(i);
    if (d.Severity === "Error" || d.Severity === "Warning") { wrong++; console.log(`${file}:${d.Start}: ${d.Message}`); }
  }
}
process.exit(wrong ? 1 : 0);
