// Proves a task's verdicts in this browser, from the service's publications and the chain. The rules are those of
// gradmarket/market/rules/proof.py and task_proof.py: EIP-712 signatures, seals, wave secrets, votes, the audit's draw, Merkle roots.
import { blake3 } from "./noble/blake3.js";
import { keccak_256 as keccak } from "./noble/sha3.js";
import { recoverPublicKey } from "./noble/secp256k1.js";

const utf8 = (text) => new TextEncoder().encode(text);
const bytes = (hex) => Uint8Array.from(hex.replace(/^0x/, "").match(/../g) ?? [], (pair) => parseInt(pair, 16));
const hex = (data) => "0x" + Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
const join = (...parts) => { const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0)); let at = 0; for (const part of parts) { all.set(part, at); at += part.length; } return all; };
const number = (value, size) => bytes(BigInt(value).toString(16).padStart(2 * size, "0"));
const word = (value) => (value instanceof Uint8Array ? join(new Uint8Array(32 - value.length), value) : typeof value === "string" && value.startsWith("0x") ? word(bytes(value)) : number(value, 32));
const same = (one, other) => hex(one) === hex(other);
const rootOf = (digest) => bytes(digest.replace(/^blake3:/, ""));
const less = (one, other) => (hex(one) < hex(other) ? one : other);
const more = (one, other) => (hex(one) < hex(other) ? other : one);

function tagged(tag, ...parts) {
  const framed = (part) => join(number(part.length, 8), part);
  return blake3(join(framed(utf8(tag)), ...parts.map(framed)));
}
function leadsTo(link, index, anchor) {
  for (let at = 0; at <= index; at += 1) link = tagged("link", link);
  return same(link, anchor);
}
function checksum(address) {
  const plain = address.toLowerCase().replace(/^0x/, ""), hash = hex(keccak(utf8(plain))).slice(2);
  return "0x" + Array.from(plain, (letter, at) => (parseInt(hash[at], 16) > 7 ? letter.toUpperCase() : letter)).join("");
}
function signerOf(digest, signature) {
  const data = bytes(signature), packed = join(data.slice(64).map((v) => v - 27), data.slice(0, 64));
  const key = recoverPublicKey(packed, digest, { prehash: false, isCompressed: false });
  return checksum(hex(keccak(key.slice(1)).slice(12)));
}

const TYPES = {
  Offer: "Offer(bytes32 instance,uint256 job,bytes32 spec,uint64 round,uint64 task,uint64 attempt,bytes32 parameters,bytes32 seed,uint64 price,bytes32 anchor,uint64 leaseSeconds,uint64 waveSeconds,uint64 uploadSeconds)",
  Commitment: "Commitment(bytes32 instance,bytes32 offer,address worker,bytes32 sealed)",
  Wave: "Wave(bytes32 instance,bytes32 offer,uint64 wave,bytes32 secret,bytes32 commitments)",
  Verdict: "Verdict(bytes32 instance,bytes32 offer,address worker,uint64 outcome,bytes32 root,uint64 price)",
};
const OFFER = ["job", "spec", "round", "task", "attempt", "parameters", "seed", "price", "anchor", "lease_seconds", "wave_seconds", "upload_seconds"];
const OUTCOMES = { 1: "accepted", 2: "rejected", 3: "inconclusive", 4: "late", 5: "accepted beside another honest one" };
const PROMISES = [1, 5], ZERO = "0x" + "00".repeat(32);

function signing(facts) {
  const name = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
  const separator = keccak(join(...[name, "GradMarket", "1"].map((text) => keccak(utf8(text))), word(facts.chain_id), word(facts.contract)));
  return (type, members) => keccak(join(bytes("1901"), separator, keccak(join(keccak(utf8(TYPES[type])), word(facts.instance), ...members.map(word)))));
}

// One line of the page: proven, false, or open where this browser cannot decide.
function line(step, state, text) {
  const item = document.createElement("li");
  item.className = state;
  item.textContent = ` ${text}`;
  document.querySelector(`[data-step=${step}]`).append(item);
}
const counts = { proven: 0, false: 0, open: 0 };
function check(step, text, test) {
  let held = false;
  try { held = test(); } catch (error) { text = `${text} (${error.message})`; }
  const state = held === null ? "open" : held ? "proven" : "false";
  counts[state] += 1;
  line(step, state, text);
}
function open(step, text) { counts.open += 1; line(step, "open", text); }

function proveOffer({ evidence, facts, digest }) {
  check("offer", `the market's key ${facts.signer} signed this offer`, () => signerOf(digest, evidence.offer_signature) === facts.signer);
  check("offer", "the digest that names the offer is the digest of these terms", () => evidence.offer_digest === hex(digest));
  open("offer", "that the terms are those of the job: gradmarket verdict check does");
}
function proveBallots({ evidence, digest, of, anchor }) {
  const cast = evidence.replicas.filter((one) => one.sealed && one.commitment_signature);
  if (!cast.length) open("seals", "the seals are not shown yet");
  for (const one of cast) {
    check("seals", `${one.worker} signed its seal`, () => signerOf(of("Commitment", [digest, one.worker, one.sealed]), one.commitment_signature) === checksum(one.worker));
  }
  for (const wave of evidence.waves.filter((each) => each.secret)) {
    const members = cast.filter((one) => one.wave === wave.number).map((one) => [checksum(one.worker), bytes(one.sealed)]);
    members.sort(([one, a], [other, b]) => (one < other ? -1 : one > other ? 1 : hex(a) < hex(b) ? -1 : 1));
    const commitments = tagged("commitments", ...members.map(([worker, sealed]) => join(utf8(worker), sealed)));
    check("waves", `wave ${wave.number} closed over exactly these seals`, () => same(commitments, bytes(wave.commitments)));
    check("waves", `its secret leads to the offer's anchor`, () => leadsTo(bytes(wave.secret), wave.number, anchor));
    check("waves", `the market's key signed the closed wave`, () => signerOf(of("Wave", [digest, wave.number, wave.secret, wave.commitments]), wave.signature) === evidence.signer);
    check("waves", `its seed follows from secret and seals`, () => same(tagged("wave", bytes(wave.secret), commitments), bytes(wave.seed)));
  }
  const opened = cast.filter((one) => one.salt && one.root);
  if (!opened.length) open("reveals", "answers are not shown before no attempt at the task can copy them");
  for (const one of opened) {
    check("reveals", `${one.worker} opened the seal that it had signed`, () => same(tagged("commit", digest, utf8(checksum(one.worker)), bytes(one.salt), rootOf(one.root)), bytes(one.sealed)));
  }
}
function proveVerdicts({ evidence, digest, of }) {
  const judged = evidence.replicas.filter((one) => one.verdict_signature);
  const agree = evidence.replicas.filter((one) => one.root && one.root === evidence.root).length;
  if (evidence.root && evidence.plan && !evidence.allowed) check("verdicts", `${agree} workers gave the accepted answer, ${evidence.plan.quorum} were needed`, () => agree >= evidence.plan.quorum);
  if (!judged.length) open("verdicts", "no verdict is shown yet");
  for (const one of judged) {
    const price = PROMISES.includes(one.outcome) ? evidence.offer.price : 0;
    const root = one.verdict_root ? rootOf(one.verdict_root) : ZERO;
    check("verdicts", `the market's key signed that the answer of ${one.worker} is ${OUTCOMES[one.outcome]}`, () => signerOf(of("Verdict", [digest, one.worker, one.outcome, root, price]), one.verdict_signature) === evidence.signer);
    if (PROMISES.includes(one.outcome)) check("verdicts", "it promises pay for this worker's own answer", () => one.verdict_root === one.root);
    if (one.outcome === 2 && evidence.root && !one.sketch) check("verdicts", "it was rejected for another answer than the one that was accepted", () => one.root !== one.verdict_root && one.verdict_root === evidence.root);
  }
}
function proveAudit({ evidence, digest, anchor, most }) {
  if (!evidence.audit_link || !evidence.plan || !evidence.root) { open("audit", "the draw is opened once no audit can change the task"); return; }
  const link = bytes(evidence.audit_link);
  check("audit", "the link that drew leads to the offer's anchor", () => leadsTo(link, most, anchor));
  const drawn = BigInt(hex(tagged("audit", link, digest, rootOf(evidence.root)))) < BigInt(Math.trunc(evidence.plan.audit * 2 ** 256));
  check("audit", drawn ? "the draw chose this task, and there is an audit" : "the draw chose no audit of this task", () => !drawn || evidence.audit !== null);
}

// The chain, asked by this browser: a local chain's node, or the viewer's wallet where it is on the same chain.
function node(facts) {
  if (facts.rpc) {
    return async (method, params) => {
      const answer = await fetch(facts.rpc, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }) });
      const told = await answer.json();
      if (told.error) throw new Error(told.error.message);
      return told.result;
    };
  }
  return window.ethereum ? (method, params) => window.ethereum.request({ method, params }) : null;
}
function call(ask, facts, signature, ...members) {
  const data = hex(join(keccak(utf8(signature)).slice(0, 4), ...members.map(word)));
  return ask("eth_call", [{ to: facts.contract, data }, "latest"]);
}
async function batchLeaves(ask, facts, job, batch) {
  const topic = hex(keccak(utf8("GradientsAccepted(uint256,address,uint64,uint64,bytes)")));
  const asked = { address: facts.contract, fromBlock: `0x${facts.block.toString(16)}`, toBlock: "latest", topics: [topic, hex(word(job)), null, hex(word(batch))] };
  const leaves = [];
  for (const log of await ask("eth_getLogs", [asked])) {
    const worker = bytes(log.topics[2]).slice(12), data = bytes(log.data), price = data.slice(26, 32);
    const length = Number(BigInt(hex(data.slice(64, 96)))), digests = data.slice(96, 96 + length);
    for (let at = 0; at < length; at += 32) leaves.push(keccak(join(worker, price, digests.slice(at, at + 32))));
  }
  return leaves;
}
function merkleRoot(level) {
  while (level.length > 1) {
    const above = [];
    for (let at = 0; at < level.length; at += 2) above.push(at + 1 < level.length ? keccak(join(less(level[at], level[at + 1]), more(level[at], level[at + 1]))) : level[at]);
    level = above;
  }
  return level[0];
}
async function provePayment({ evidence, facts, job }) {
  const ask = node(facts), paid = [...document.querySelectorAll("[data-paid]")];
  if (!ask) { open("payment", "this browser has no wallet to ask the chain with"); return; }
  if (BigInt(await ask("eth_chainId", [])) !== BigInt(facts.chain_id)) { open("payment", "the wallet is on another chain"); return; }
  const signs = BigInt(await call(ask, facts, "isSigner(uint256,address)", job, facts.signer)) === 1n;
  check("offer", "the contract names that key as the job's signer", () => signs);
  for (const { dataset: one } of paid) {
    if (!one.settled) { open("payment", `no settled batch carries the gradient of ${one.worker} yet`); continue; }
    const [leaves, root] = [await batchLeaves(ask, facts, job, one.batch), bytes(await call(ask, facts, "batchRoot(uint256,uint64)", job, one.batch))];
    const replica = evidence.replicas.find((each) => each.id === one.replica);
    check("payment", `the records of batch ${one.batch} give the Merkle root that the contract stored`, () => same(merkleRoot(leaves), root));
    if (!replica?.root) { open("payment", "the answer is not shown yet"); continue; }
    const leaf = keccak(join(bytes(one.worker), number(one.units, 6), rootOf(replica.root)));
    check("payment", `the gradient of ${one.worker} is one of them, at its price`, () => leaves.some((each) => same(each, leaf)));
  }
}

async function prove() {
  const sum = document.getElementById("sum"), told = document.getElementById("facts").dataset;
  const facts = JSON.parse(told.facts), answer = await fetch(`${BASE}/v1/jobs/${sum.dataset.job}/tasks/${sum.dataset.task}`);
  const evidence = { ...(await answer.json()), signer: facts.signer }, of = signing(facts);
  const spec = (await (await fetch(`${BASE}/v1/jobs/${sum.dataset.job}`)).json()).spec;
  const scene = { evidence, facts, of, job: told.chainJob, anchor: bytes(evidence.offer.anchor), digest: of("Offer", OFFER.map((name) => evidence.offer[name])), most: spec.replication.max_replicas };
  proveOffer(scene);
  proveBallots(scene);
  proveVerdicts(scene);
  proveAudit(scene);
  if (scene.job === "") open("payment", "the job is not on the chain yet");
  else await provePayment(scene).catch((error) => open("payment", `the chain did not answer: ${error.message}`));
  sum.className = `notice ${counts.false ? "bad" : "good"}`;
  sum.textContent = counts.false ? `${counts.false} statements are not so; ${counts.proven} are proven.` : `${counts.proven} statements are proven by this browser, ${counts.open} could not be checked here.`;
}
prove().catch((error) => { document.getElementById("sum").textContent = `It could not be checked: ${error.message}`; });
