// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title Vouchers: a worker redeems what the job's signer promised, whoever sends it.
/// @notice Nobody can pause or stop a redeem: signers are never removed, and they are checked by ECDSA alone (with low
/// s), so code that appears on a signer's address (EIP-7702) changes nothing.
interface IVouchers is ILedger {
    /// @dev the members of a voucher; see `redeem`
    struct SignedVoucher {
        uint256 jobId;
        address worker;
        uint64 cumulative;
        bytes signature;
    }

    error BadPayout();
    /// @notice the token refused to pay this payee
    error PaymentFailed();

    event Paid(uint256 indexed jobId, address indexed worker, address to, uint64 amount);
    event PayoutSet(address indexed worker, address payout);
    event SignerAdded(uint256 indexed jobId, address indexed signer);
    /// @param index of the row in the call
    /// @param reason selector of the error that `redeem` would have failed with
    event VoucherSkipped(uint256 indexed jobId, address indexed worker, uint256 index, bytes4 reason);

    /// @notice Presents Voucher(instance, job, worker, cumulative) and pays all that is due to the worker, or to its
    /// payout address; until claimUntil, by anyone. A voucher beyond the reservation pays up to it, and the rest when
    /// the reservation has grown. An old voucher pays what is due and changes nothing else.
    /// @return amount paid, in units
    function redeem(uint256 jobId, address worker, uint64 cumulative, bytes calldata signature)
        external
        returns (uint64 amount);

    /// @notice Presents many vouchers, of any jobs and workers. A bad row is skipped and reported, and so is one whose
    /// payee the token refuses: its voucher counts, and what is due can be collected later.
    function redeemBatch(SignedVoucher[] calldata vouchers) external;

    /// @notice Pays what batches and vouchers presented before have credited; at any time, by anyone.
    function collect(uint256 jobId, address worker) external returns (uint64 amount);

    /// @notice Where the caller's earnings go from now on, in all jobs; zero: to the worker itself.
    function setPayout(address payout) external;

    /// @notice The same by the worker's signature over Payout(instance, worker, payout, nonce), sent by anyone.
    function setPayoutFor(address worker, address payout, uint64 nonce, bytes calldata signature) external;

    /// @notice Adds a key whose vouchers count too; by the requester. No signer is ever removed.
    function addSigner(uint256 jobId, address signer) external;

    /// @notice The next nonce of a worker's signed payout; naming one directly takes one as well.
    function payoutNonce(address worker) external view returns (uint64);

    /// @notice Where a worker's earnings go.
    function payoutOf(address worker) external view returns (address);

    /// @notice What `collect` would pay, in units.
    function due(uint256 jobId, address worker) external view returns (uint64);

    function isSigner(uint256 jobId, address signer) external view returns (bool);
}
