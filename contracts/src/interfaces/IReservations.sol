// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title What is set aside for single workers.
interface IReservations is ILedger {
    /// @dev the members of a signed release; see `releaseFor`
    struct SignedRelease {
        address worker;
        uint64 reserved;
        uint64 nonce;
        bytes signature;
    }

    /// @param added by this call; `reserved` is the worker's new total
    event Reserved(uint256 indexed jobId, address indexed worker, uint64 added, uint64 reserved);
    event Released(uint256 indexed jobId, address indexed worker, uint64 reserved, uint64 nonce);
    event ReleaseSkipped(uint256 indexed jobId, uint256 index, address worker);
    event JobClosed(uint256 indexed jobId);

    /// @notice Adds to workers' reservations, by the requester or its sender, until expiry.
    /// @param data a run of worker (20 bytes) | amount in units (8 bytes)
    function reserve(uint256 jobId, bytes calldata data) external;

    /// @notice Lowers the caller's own reservation to `reserved`, but never below what it is credited with. Voids all
    /// releases signed before; with its present reservation a worker does only that.
    function release(uint256 jobId, uint64 reserved) external;

    /// @notice The same by the worker's signature over Release(instance, job, worker, reserved, nonce), sent by anyone.
    /// @dev A worker that has signed a release counts on no more than `reserved` until it is on-chain or void.
    function releaseFor(uint256 jobId, address worker, uint64 reserved, uint64 nonce, bytes calldata signature) external;

    /// @notice Closes a job early: applies the workers' releases, takes out all that is then free, and lets no deposit
    /// or reservation follow. By the requester, until claimUntil. What stays reserved stays until claimUntil.
    /// @dev A release that is not good is skipped and reported.
    /// @return amount taken out, in units
    function closeJob(uint256 jobId, SignedRelease[] calldata releases) external returns (uint64 amount);

    function releaseNonce(uint256 jobId, address worker) external view returns (uint64);
}
