// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title Batches: the requester credits many workers at once.
/// @notice Batches carry consecutive numbers, so each counts exactly once whatever became of its transaction. They only
/// credit: no payee can make one fail, not even by releasing its reservation.
interface ISettlement is ILedger {
    /// @notice the batch to send is `expected`
    error WrongBatch(uint64 expected);

    /// @param price of each, in units
    /// @param digests of the accepted gradients, 32 bytes each
    event GradientsAccepted(
        uint256 indexed jobId, address indexed worker, uint64 indexed batch, uint64 price, bytes digests
    );
    /// @param root Merkle root over the batch's records
    /// @param total sum of the prices, in units
    event BatchSettled(uint256 indexed jobId, uint64 indexed batch, bytes32 root, uint64 total);

    /// @param recordRoot Merkle root over the records that the requester publishes
    event BatchRooted(uint256 indexed jobId, uint64 indexed batch, bytes32 recordRoot, uint64 total);

    /// @notice Credits workers for gradients, by the requester or its sender, until claimUntil.
    /// @param batch the job's next batch number
    /// @param data a run of groups: worker (20 bytes) | price in units (6) | count (2) | count digests (32 each)
    /// @dev The stored root is over leaves keccak256(worker | price | digest), in order, in pairs sorted as in
    /// OpenZeppelin's MerkleProof; a last node without a partner moves up as it is. A leaf's preimage has 58 bytes and
    /// a node's 64, so no node passes for a leaf.
    function settlePacked(uint256 jobId, uint64 batch, bytes calldata data) external;

    /// @notice Root of a batch of `settlePacked`; 0 if there was none.
    function batchRoot(uint256 jobId, uint64 batch) external view returns (bytes32);

    /// @notice Whether `batch` credited `worker` with `price` for the gradient `digest`; answers for ever.
    /// @param proof siblings from leaf to root, as OpenZeppelin's MerkleProof takes them
    function wasAccepted(
        uint256 jobId,
        uint64 batch,
        address worker,
        uint48 price,
        bytes32 digest,
        bytes32[] calldata proof
    ) external view returns (bool);

    /// @notice Credits workers with sums, by the requester or its sender, until claimUntil; the records are published
    /// elsewhere. Takes its number from the same sequence as `settlePacked`.
    /// @param root what the requester says the records' root is; the contract has not seen them, so it is kept
    /// apart and `wasAccepted` knows nothing of it
    /// @param data a run of worker (20 bytes) | sum in units (8 bytes)
    function settleRooted(uint256 jobId, uint64 batch, bytes32 root, bytes calldata data) external;

    /// @notice What `settleRooted` was given for a batch; 0 if there was none.
    function recordRoot(uint256 jobId, uint64 batch) external view returns (bytes32);
}
