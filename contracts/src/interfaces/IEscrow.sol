// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title A job's money: deposits, reservations for single workers, releases, refunds.
/// @notice Amounts are whole multiples of the job's `unit` (that many of the token's smallest unit), as uint64.
///
/// Times, all inclusive, in seconds since 1970:
///   until `expiry`        deposits and reservations grow
///   until `claimUntil`    batches, vouchers and releases count; what is reserved for a worker stays reserved
///   after `claimUntil`    the requester takes back all that no worker was credited with
/// Batches still count between expiry and claimUntil, since they only credit; and what was credited by then can be
/// collected for ever. So a worker loses nothing by time as long as it redeems its last voucher until claimUntil.
interface IEscrow {
    /// @param amount deposit, in units; may be 0 (top up later)
    /// @param unit the token's smallest units in one unit of the job; > 0
    /// @param voucherSigner key that signs vouchers; checked by ECDSA alone and fixed for the life of the job
    /// @param slashWindow seconds after leaving in which a worker can still be accused; 0: this job never slashes
    /// @param contestWindow seconds to contest an accusation
    /// @param decisionWindow seconds for the worker's validators to decide a contested one
    /// @param bond what an accuser puts down, in units
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
        string endpoint;
    }

    /// @notice What a job owes one worker; one storage word.
    /// @param reserved set aside for this worker alone; falls only by its own release, or after claimUntil
    /// @param settled sum of all batches
    /// @param vouchered highest voucher presented
    /// @param withdrawn paid out
    /// @dev Batches and vouchers count the same cumulative earnings, so
    /// credited = min(max(settled, vouchered), reserved) and due = credited - withdrawn.
    struct Account {
        uint64 reserved;
        uint64 settled;
        uint64 vouchered;
        uint64 withdrawn;
    }

    /// @param deposited in the job now or paid to workers: deposits less what the requester took back
    /// @param reserved sum over the workers; <= deposited
    /// @param credited sum over the workers; <= reserved
    /// @param batches number of the next batch
    struct Job {
        address requester;
        uint48 expiry;
        uint48 claimUntil;
        uint64 deposited;
        uint64 reserved;
        uint64 credited;
        uint64 batches;
        uint64 unit;
        uint64 bond;
        uint32 slashWindow;
        uint32 contestWindow;
        uint32 decisionWindow;
        address sender;
    }

    error NoSuchJob(uint256 jobId);
    error NotRequester();
    error NotSender();
    /// @notice the time for this has passed
    error TooLate(uint256 until);
    /// @notice the time for this has not come
    error TooEarly(uint256 notBefore);
    /// @notice a job's terms are contradictory, or leave workers too little time
    error BadTerms();
    /// @notice more than is there
    error Overdrawn(uint256 available);
    /// @notice nothing of a deposit arrived, or not enough of a bond or stake
    error NothingArrived();
    error BadSignature();
    /// @notice packed bytes that are cut short, empty, or name the zero address
    error Malformed();

    /// @param deposited what arrived, in units; below `params.amount` where the token takes a fee
    event JobOpened(uint256 indexed jobId, address indexed requester, uint64 deposited, OpenParams params);
    event Deposited(uint256 indexed jobId, address indexed from, uint64 amount);
    event Refunded(uint256 indexed jobId, uint64 amount);
    event SenderSet(uint256 indexed jobId, address sender);
    /// @param added by this call; `reserved` is the worker's new total
    event Reserved(uint256 indexed jobId, address indexed worker, uint64 added, uint64 reserved);
    event Released(uint256 indexed jobId, address indexed worker, uint64 reserved, uint64 nonce);

    /// @notice Opens a job and deposits `params.amount` units from the caller, who becomes its requester.
    /// The deposit is what arrives, so a token that takes a fee credits less. `JobOpened` carries all a worker needs.
    function openJob(OpenParams calldata params) external returns (uint256 jobId);

    /// @notice Adds to a job's deposit, from anyone, until expiry.
    function topUp(uint256 jobId, uint64 amount) external;

    /// @notice Names a key that may reserve and settle besides the requester; it can take nothing out. Zero: none.
    function setSender(uint256 jobId, address sender) external;

    /// @notice Adds to workers' reservations, by the requester or its sender, until expiry.
    /// @param data a run of worker (20 bytes) | amount in units (8 bytes)
    function reserve(uint256 jobId, bytes calldata data) external;

    /// @notice Lowers the caller's own reservation to `reserved`, but never below what it is credited with. Voids all
    /// releases signed before; with its present reservation a worker does only that.
    function release(uint256 jobId, uint64 reserved) external;

    /// @notice The same by the worker's signature over Release(instance, job, worker, reserved, nonce), sent by anyone.
    /// @dev A worker that has signed a release counts on no more than `reserved` until it is on-chain or void.
    function releaseFor(uint256 jobId, address worker, uint64 reserved, uint64 nonce, bytes calldata signature) external;

    /// @notice Takes out, at any time, what is reserved for nobody.
    function withdrawFree(uint256 jobId, uint64 amount) external;

    /// @notice After claimUntil: takes out all that no worker was credited with.
    function refund(uint256 jobId) external returns (uint64 amount);

    function job(uint256 jobId) external view returns (Job memory);

    function account(uint256 jobId, address worker) external view returns (Account memory);

    /// @notice What the requester can take out now, in units.
    function free(uint256 jobId) external view returns (uint64);

    function releaseNonce(uint256 jobId, address worker) external view returns (uint64);

    /// @notice The EIP-712 digest a worker signs to release.
    function hashRelease(uint256 jobId, address worker, uint64 reserved, uint64 nonce) external view returns (bytes32);
}
