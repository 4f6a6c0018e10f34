// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title A job's money: deposits and refunds.
/// @notice Amounts are whole multiples of the job's `unit` (that many of the token's smallest unit), as uint64.
///
/// Times, all inclusive, in seconds since 1970:
///   until `expiry`        deposits and reservations grow
///   until `claimUntil`    batches, vouchers and releases count; what is reserved for a worker stays reserved
///   after `claimUntil`    the requester takes back all that no worker was credited with
/// Batches still count between expiry and claimUntil, since they only credit; and what was credited by then can be
/// collected for ever. So a worker loses nothing by time as long as it redeems its last voucher until claimUntil.
interface IEscrow is ILedger {
    /// @param amount deposit, in units; may be 0 (top up later)
    /// @param unit the token's smallest units in one unit of the job; > 0
    /// @param voucherSigner key that signs vouchers; checked by ECDSA alone and fixed for the life of the job
    /// @param slashWindow seconds after leaving in which a worker can still be accused; 0: this job never slashes
    /// @param contestWindow seconds to contest an accusation
    /// @param decisionWindow seconds for the worker's validators to decide a contested one
    /// @param bond what an accuser puts down, in units
    /// @param vest units of each worker's credit that stay locked; 0: this job's pay never vests
    /// @param vestWindow for so many seconds after the credit grew
    /// @param vestQuorum keccak256(abi.encode(validators, threshold)), who alone can burn what is locked
    struct OpenParams {
        uint64 amount;
        uint64 unit;
        uint48 expiry;
        uint48 claimUntil;
        address voucherSigner;
        bytes32 specDigest;
        uint32 slashWindow;
        uint32 contestWindow;
        uint32 decisionWindow;
        uint64 bond;
        uint64 vest;
        uint32 vestWindow;
        bytes32 vestQuorum;
        string endpoint;
    }

    /// @param deposited what arrived, in units; below `params.amount` where the token takes a fee
    event JobOpened(uint256 indexed jobId, address indexed requester, uint64 deposited, OpenParams params);
    event Deposited(uint256 indexed jobId, address indexed from, uint64 amount);
    event Refunded(uint256 indexed jobId, uint64 amount);
    event SenderSet(uint256 indexed jobId, address sender);
    /// @notice Opens a job and deposits `params.amount` units from the caller, who becomes its requester.
    /// The deposit is what arrives, so a token that takes a fee credits less. `JobOpened` carries all a worker needs.
    function openJob(OpenParams calldata params) external returns (uint256 jobId);

    /// @notice The same with the caller's EIP-2612 permit for the deposit. A permit that was used already, or that the
    /// token does not know, is passed over: then the allowance decides.
    function openJobWithPermit(OpenParams calldata params, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        returns (uint256 jobId);

    /// @notice Adds to a job's deposit, from anyone, until expiry.
    function topUp(uint256 jobId, uint64 amount) external;

    /// @notice The same with the caller's EIP-2612 permit.
    function topUpWithPermit(uint256 jobId, uint64 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Names a key that may reserve and settle besides the requester; it can take nothing out. Zero: none.
    function setSender(uint256 jobId, address sender) external;

    /// @notice Takes out, at any time, what is reserved for nobody.
    function withdrawFree(uint256 jobId, uint64 amount) external;

    /// @notice After claimUntil: takes out all that no worker was credited with.
    function refund(uint256 jobId) external returns (uint64 amount);

    /// @notice What the requester can take out now, in units.
    function free(uint256 jobId) external view returns (uint64);
}
