// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Ledger} from "./Ledger.sol";

/// @title Stake and exposure.
abstract contract Stake is Ledger {
    using SafeERC20 for IERC20;

    mapping(address worker => Staker) internal _stakers;
    mapping(uint256 jobId => mapping(address worker => Exposure)) internal _exposures;

    function stake(uint128 amount) external override nonReentrant {
        uint128 arrived = uint128(_pull(amount));
        if (arrived == 0) revert NothingArrived();
        _stakers[msg.sender].amount += arrived;
        emit Staked(msg.sender, arrived);
    }

    function unstake(uint128 amount) external override nonReentrant {
        _needUnexposed(msg.sender, amount);
        _stakers[msg.sender].amount -= amount;
        emit Unstaked(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    function joinJob(uint256 jobId, uint128 atRisk, bytes32 quorum) external override {
        Job storage j = _job(jobId);
        _until(j.expiry);
        if (j.slashWindow == 0 || atRisk == 0 || quorum == 0) revert BadTerms();
        if (_exposures[jobId][msg.sender].atRisk != 0) revert AlreadyJoined();
        _needUnexposed(msg.sender, atRisk);
        _stakers[msg.sender].exposed += atRisk;
        _exposures[jobId][msg.sender] = Exposure(atRisk, 0, 0, 0, quorum);
        emit Joined(jobId, msg.sender, atRisk, quorum);
    }

    function leaveJob(uint256 jobId) external override {
        Exposure storage e = _joined(jobId, msg.sender);
        if (e.lockedUntil != 0) revert AlreadyLeft();
        e.lockedUntil = uint48(block.timestamp + _jobs[jobId].slashWindow);
        emit Left(jobId, msg.sender, e.lockedUntil);
    }

    function freeExposure(uint256 jobId, address worker) external override {
        Exposure storage e = _joined(jobId, worker);
        if (e.lockedUntil == 0) revert NotLeft();
        _after(e.lockedUntil);
        if (e.openCases != 0) revert CaseOpen();
        uint128 amount = e.atRisk;
        delete _exposures[jobId][worker];
        _stakers[worker].exposed -= amount;
        emit Freed(jobId, worker, amount);
    }

    function staker(address worker) external view override returns (Staker memory) {
        return _stakers[worker];
    }

    function exposure(uint256 jobId, address worker) external view override returns (Exposure memory) {
        return _exposures[jobId][worker];
    }

    function _joined(uint256 jobId, address worker) internal view returns (Exposure storage e) {
        e = _exposures[jobId][worker];
        if (e.atRisk == 0) revert NotJoined();
    }

    function _needUnexposed(address worker, uint128 amount) private view {
        Staker memory s = _stakers[worker];
        if (amount > s.amount - s.exposed) revert Overdrawn(s.amount - s.exposed);
    }
}
