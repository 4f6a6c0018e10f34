// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "./ILedger.sol";

/// @title Stake: what a worker puts at risk, job by job.
/// @notice Amounts here are in the token's smallest unit. A worker bounds what one job can slash and names the
/// validators that decide; the requester sees both before it gives work. An exposure stays locked until the job's slash
/// window after leaving has passed and every accusation is closed, so nobody walks before the slash. What is slashed is
/// burnt, all of it: neither who accuses nor who decides gains.
///
///   accuse -> (contest window) -> contested -> (decision window) -> decided: slashed, or acquitted and the bond burnt
///                 \-> uncontested: slashed                 \-> nobody decided: dismissed
interface IStake is ILedger {
    /// @dev Vested: an accusation of locked pay (IVesting), which waits for a ruling
    enum Stage {
        None,
        Open,
        Contested,
        Closed,
        Vested
    }

    /// @param exposed sum over the jobs; <= amount
    struct Staker {
        uint128 amount;
        uint128 exposed;
    }

    /// @param atRisk most that the job can slash
    /// @param accused sum of the open accusations; <= atRisk
    /// @param lockedUntil when accusations end; 0 until the worker leaves
    /// @param openCases accusations not closed
    /// @param quorum keccak256(abi.encode(validators, threshold))
    struct Exposure {
        uint128 atRisk;
        uint128 accused;
        uint48 lockedUntil;
        uint64 openCases;
        bytes32 quorum;
    }

    /// @param until end of the present stage's window
    struct Case {
        uint256 jobId;
        address worker;
        uint48 until;
        Stage stage;
        uint128 amount;
        uint128 bond;
    }

    error NotJoined();
    error AlreadyJoined();
    /// @notice the worker has not left the job
    error NotLeft();
    /// @notice the worker has left the job
    error AlreadyLeft();
    error NotAccused();
    /// @notice an event that was accused before, or a zero amount
    error BadAccusation();
    /// @notice validators other than the worker agreed to, or too few signatures of theirs
    error NoQuorum();
    /// @notice the case is not at the stage for this
    error WrongStage(Stage stage);
    /// @notice an accusation is open
    error CaseOpen();

    event Staked(address indexed worker, uint128 amount);
    event Unstaked(address indexed worker, uint128 amount);
    event Joined(uint256 indexed jobId, address indexed worker, uint128 atRisk, bytes32 quorum);
    event Left(uint256 indexed jobId, address indexed worker, uint48 lockedUntil);
    event Freed(uint256 indexed jobId, address indexed worker, uint128 amount);
    event Accused(
        bytes32 indexed caseId,
        uint256 indexed jobId,
        address indexed worker,
        uint128 amount,
        bytes32 eventDigest,
        uint48 contestUntil
    );
    event Contested(bytes32 indexed caseId, uint48 decideUntil);
    event Slashed(bytes32 indexed caseId, uint256 indexed jobId, address indexed worker, uint128 amount);
    event Acquitted(bytes32 indexed caseId, uint128 bondBurnt);
    event Dismissed(bytes32 indexed caseId);
    event Burnt(uint256 amount);

    /// @notice Adds to the caller's stake; what arrives counts.
    function stake(uint128 amount) external;

    /// @notice Takes out what no job exposes.
    function unstake(uint128 amount) external;

    /// @notice Exposes `atRisk` of the caller's stake to a job that may slash, until expiry.
    /// @param quorum keccak256(abi.encode(validators, threshold)), who decides about the caller
    function joinJob(uint256 jobId, uint128 atRisk, bytes32 quorum) external;

    /// @notice Ends the caller's part in a job: it can be accused for the slash window more.
    function leaveJob(uint256 jobId) external;

    /// @notice Frees a worker's exposure once its lock has passed and no case is open; by anyone.
    function freeExposure(uint256 jobId, address worker) external;

    /// @notice Accuses a worker, by the job's requester, with the job's bond. The sum of open accusations is at most
    /// what the worker put at risk.
    /// @param eventDigest what the worker did; counts once for a job and worker, whatever becomes of the case
    /// @return caseId keccak256(abi.encode(jobId, worker, eventDigest))
    function accuse(uint256 jobId, address worker, uint128 amount, bytes32 eventDigest)
        external
        returns (bytes32 caseId);

    /// @notice The accused contests, within the contest window: its validators decide.
    function contest(bytes32 caseId) external;

    /// @notice Contests for the accused, by a watcher that it named for all of its cases. Nothing else comes of a mandate,
    /// so it has no end: a contested case never costs the accused more than an uncontested one.
    /// @param mandate the accused worker's signature over Watch(instance, worker, watcher), where the caller watches
    function contestFor(bytes32 caseId, bytes calldata mandate) external;

    /// @notice Closes a contested case by signatures over Ruling(instance, accusation, amount, guilty), within the
    /// decision window, sent by anyone. Guilty: slashed, and the bond goes to the requester's stake. Not guilty: the
    /// bond is burnt.
    /// @param signatures at least `threshold`, of different validators, in the validators' order
    function decide(
        bytes32 caseId,
        bool guilty,
        address[] calldata validators,
        uint256 threshold,
        bytes[] calldata signatures
    ) external;

    /// @notice Closes a case whose window has passed, by anyone: an uncontested one is slashed, an undecided one is
    /// dismissed. Either way the bond goes to the requester's stake, unless locked pay was accused: then it is burnt.
    function close(bytes32 caseId) external;

    /// @notice Sends what was slashed or forfeited to an address that nobody holds.
    /// @dev Apart from slashing, so that no token can block a slash.
    function burn() external;

    function staker(address worker) external view returns (Staker memory);

    function exposure(uint256 jobId, address worker) external view returns (Exposure memory);

    function caseOf(bytes32 caseId) external view returns (Case memory);

    /// @notice Slashed or forfeited and not yet sent away.
    function toBurn() external view returns (uint256);
}
