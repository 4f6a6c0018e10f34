// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {Ledger} from "./Ledger.sol";
import {AccountWord} from "./libraries/AccountWord.sol";
import {MerkleRoot} from "./libraries/MerkleRoot.sol";
import {Packed} from "./libraries/Packed.sol";

/// @title Batches.
abstract contract Settlement is Ledger {
    /// @dev what a batch adds up to while its groups are read
    struct Tally {
        uint256 count;
        uint64 total;
        uint64 credited;
        bytes32[] leaves;
    }

    mapping(uint256 jobId => mapping(uint64 batch => bytes32)) public override batchRoot;
    mapping(uint256 jobId => mapping(uint64 batch => bytes32)) public override recordRoot;

    function settlePacked(uint256 jobId, uint64 batch, bytes calldata data) external override {
        Job storage j = _jobForBatch(jobId, batch);
        Tally memory tally = _creditGroups(jobId, batch, data);
        (j.credited, j.batches) = (j.credited + tally.credited, batch + 1);
        bytes32 root = MerkleRoot.fold(tally.leaves, tally.count);
        batchRoot[jobId][batch] = root;
        emit BatchSettled(jobId, batch, root, tally.total);
    }

    function settleRooted(uint256 jobId, uint64 batch, bytes32 root, bytes calldata data) external override {
        Job storage j = _jobForBatch(jobId, batch);
        mapping(address => Account) storage accounts = _accounts[jobId];
        uint256 rows = Packed.rows(data);
        uint64 total;
        uint64 credited;
        for (uint256 i; i < rows; ++i) {
            (address worker, uint64 sum) = Packed.row(data, i);
            credited += _credit(accounts[worker], sum);
            total += sum;
        }
        (j.credited, j.batches) = (j.credited + credited, batch + 1);
        recordRoot[jobId][batch] = root;
        emit BatchRooted(jobId, batch, root, total);
    }

    function wasAccepted(
        uint256 jobId,
        uint64 batch,
        address worker,
        uint48 price,
        bytes32 digest,
        bytes32[] calldata proof
    ) external view override returns (bool) {
        bytes32 root = batchRoot[jobId][batch];
        bytes32 leaf = keccak256(abi.encodePacked(worker, price, digest));
        return root != 0 && MerkleProof.verifyCalldata(proof, root, leaf);
    }

    function _jobForBatch(uint256 jobId, uint64 batch) private view returns (Job storage j) {
        j = _jobOfSender(jobId);
        _until(j.claimUntil);
        if (batch != j.batches) revert WrongBatch(j.batches);
    }

    /// @return newlyCredited by how much the worker's credit grew; less than `sum` where a voucher came first, or where
    /// the reservation ends
    function _credit(Account storage a, uint64 sum) private returns (uint64 newlyCredited) {
        uint256 row = AccountWord.read(a);
        uint64 before = AccountWord.credited(row);
        (row, newlyCredited) = AccountWord.stamped(AccountWord.add(row, sum, AccountWord.SETTLED), before);
        AccountWord.write(a, row);
    }

    function _creditGroups(uint256 jobId, uint64 batch, bytes calldata data) private returns (Tally memory tally) {
        if (data.length == 0) revert Malformed();
        tally.leaves = new bytes32[](data.length / 32);
        for (uint256 position; position < data.length;) {
            position = _creditGroup(jobId, batch, data, position, tally);
        }
    }

    function _creditGroup(uint256 jobId, uint64 batch, bytes calldata data, uint256 position, Tally memory tally)
        private
        returns (uint256 end)
    {
        address worker;
        uint64 price;
        uint64 count;
        (worker, price, count, end) = Packed.group(data, position);
        bytes calldata digests = data[position + Packed.HEADER:end];
        emit GradientsAccepted(jobId, worker, batch, price, digests);
        MerkleRoot.addLeaves(tally.leaves, tally.count, bytes32(data[position:position + 26]), digests);
        tally.count += count;
        tally.total += price * count;
        tally.credited += _credit(_accounts[jobId][worker], price * count);
    }
}
