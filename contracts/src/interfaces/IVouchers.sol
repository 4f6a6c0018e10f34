// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Vouchers: a worker redeems what the job's signer promised, whoever sends it.
/// @notice Nobody can pause or stop a redeem: signers are never removed, and they are checked by ECDSA alone (with low
/// s), so code that appears on a signer's address (EIP-7702) changes nothing.
interface IVouchers {
    error BadPayout();

    event Paid(uint256 indexed jobId, address indexed worker, address to, uint64 amount);
    event PayoutSet(address indexed worker, address payout);

    /// @notice Presents Voucher(instance, job, worker, cumulative) and pays all that is due to the worker, or to its
    /// payout address; until claimUntil, by anyone. A voucher beyond the reservation pays up to it, and the rest when
    /// the reservation has grown. An old voucher pays what is due and changes nothing else.
    /// @return amount paid, in units
    function redeem(uint256 jobId, address worker, uint64 cumulative, bytes calldata signature)
        external
        returns (uint64 amount);

    /// @notice Pays what batches and vouchers presented before have credited; at any time, by anyone.
    function collect(uint256 jobId, address worker) external returns (uint64 amount);

    /// @notice Where the caller's earnings go from now on, in all jobs; zero: to the worker itself.
    function setPayout(address payout) external;

    /// @notice Where a worker's earnings go.
    function payoutOf(address worker) external view returns (address);

    /// @notice What `collect` would pay, in units.
    function due(uint256 jobId, address worker) external view returns (uint64);

    function isSigner(uint256 jobId, address signer) external view returns (bool);

    /// @notice The EIP-712 digest a voucher's signer signs.
    function hashVoucher(uint256 jobId, address worker, uint64 cumulative) external view returns (bytes32);
}
