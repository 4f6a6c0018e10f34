// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// @title The rows of the ledger, and why a move is refused.
/// @notice One deployment holds one token, so that a hostile token can hurt only who chose its market.
interface ILedger {
    /// @notice What a job owes one worker; one storage word.
    /// @param reserved set aside for this worker alone; falls only by its own release, or after claimUntil
    /// @param settled sum of all batches
    /// @param vouchered highest voucher presented
    /// @param withdrawn paid out, or burnt after a ruling
    /// @param creditedAt when `credited` grew last; seconds, until 2106
    /// @dev Batches and vouchers count the same cumulative earnings, so
    /// credited = min(max(settled, vouchered), reserved) and due = credited - withdrawn - locked.
    struct Account {
        uint56 reserved;
        uint56 settled;
        uint56 vouchered;
        uint56 withdrawn;
        uint32 creditedAt;
    }

    /// @param deposited in the job now or paid to workers: deposits less what the requester took back
    /// @param reserved sum over the workers; <= deposited
    /// @param credited sum over the workers; <= reserved
    /// @param batches number of the next batch
    /// @param vest the last so many units of each worker's credit stay locked
    /// @param vestWindow for so long after the credit grew; 0: nothing vests
    /// @param vestQuorum who rules on vested money; see IVesting
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
        uint32 vestWindow;
        uint64 vest;
        uint32 contestWindow;
        uint32 decisionWindow;
        address sender;
        bytes32 vestQuorum;
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
    /// @notice nothing of a deposit or stake arrived, or not all of a bond
    error NothingArrived();
    error BadSignature();
    /// @notice packed bytes that are cut short, empty, or name the zero address
    error Malformed();

    function token() external view returns (IERC20);

    /// @notice Part of every signed struct. A local chain that is started anew gives the same chain id and the same
    /// contract address; this tells its history from the old one, so that no old signature counts.
    function INSTANCE() external view returns (bytes32);

    /// @notice Least claimUntil - expiry, and least window to contest or decide; seconds.
    function minWindow() external view returns (uint48);

    /// @notice Jobs are numbered from 1 to this.
    function jobCount() external view returns (uint256);

    function job(uint256 jobId) external view returns (Job memory);

    function account(uint256 jobId, address worker) external view returns (Account memory);
}
