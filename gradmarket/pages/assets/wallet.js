// A wallet in the browser (EIP-1193) signs what the service lists, one transaction after the other has been mined.
"use strict";
const Wallet = (() => {
  const PATIENCE_MS = 120000, LOOK_MS = 500;
  const plain = (error) => new Error(error.code === 4001 ? "The wallet refused to sign; nothing more was sent." : error.message || String(error));
  const call = (method, params) => window.ethereum.request({ method, params }).catch((error) => { throw plain(error); });

  async function onChain(id) {
    const wanted = `0x${BigInt(id).toString(16)}`;
    if (BigInt(await call("eth_chainId", [])) === BigInt(id)) return;
    await call("wallet_switchEthereumChain", [{ chainId: wanted }]);
    if (BigInt(await call("eth_chainId", [])) !== BigInt(id)) throw new Error(`Switch the wallet to chain ${id} and try again.`);
  }

  async function holds(address) {
    const accounts = await call("eth_requestAccounts", []);
    if (!accounts.some((account) => account.toLowerCase() === address.toLowerCase())) {
      throw new Error(`The job's money belongs to ${address}, which this wallet does not hold: choose that account in it.`);
    }
  }

  async function mined(hash) {
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end;) {
      const receipt = await call("eth_getTransactionReceipt", [hash]);
      if (receipt) {
        if (BigInt(receipt.status) === 1n) return;
        throw new Error(`The contract refused transaction ${hash}.`);
      }
      await new Promise((over) => setTimeout(over, LOOK_MS));
    }
    throw new Error(`Transaction ${hash} is not mined yet: fund again once it is, and only the rest is asked for.`);
  }

  // Signs all of them; `say` gets its progress. Throws an Error with a sentence for people.
  async function send(transactions, say) {
    if (!window.ethereum) throw new Error(`Sign these ${transactions.length} transactions with the owner's wallet: none is in this browser.`);
    await holds(transactions[0].from);
    for (const [at, { purpose, chain_id, from, to, data, value }] of transactions.entries()) {
      await onChain(chain_id);
      say(`Sign ${purpose} in the wallet, ${at + 1} of ${transactions.length} …`);
      await mined(await call("eth_sendTransaction", [{ from, to, data, value: `0x${BigInt(value).toString(16)}` }]));
    }
  }
  return { send };
})();
