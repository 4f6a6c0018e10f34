// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title Vesting: the last of a worker's credit in a job waits, so that a proven fault can burn it.
/// @notice Of what a worker is credited with and was not paid, the last `vest` units stay locked until `vestWindow`
/// seconds after its credit grew last: by time alone, and after claimUntil too. Then `collect` pays them; nobody can
/// give them back to the requester. A worker agrees to the job's validators by taking its work.
///
///   accuseVested -> (decision window) -> ruled guilty: burnt, and the bond back to the requester's stake
///                                        ruled not guilty, or not ruled: free again, and the bond burnt
///
/// So silence never burns, whoever is silent. The ruling is `decide`, and `close` ends what nobody ruled on.
interface IVesting is ILedger {
    /// @notice Locked pay was burnt; `Slashed` names the case.
    event VestBurnt(uint256 indexed jobId, address indexed worker, uint64 amount);

    /// @notice Accuses a worker, by the job's requester, with the job's bond, while its credit is locked. The sum of open
    /// accusations is at most what is locked, and stays locked until they end.
    /// @param amount in units
    /// @param eventDigest what the worker did; counts once for a job and worker, whatever becomes of the case
    /// @return caseId keccak256(abi.encode(jobId, worker, ~eventDigest))
    function accuseVested(uint256 jobId, address worker, uint64 amount, bytes32 eventDigest)
        external
        returns (bytes32 caseId);
}
