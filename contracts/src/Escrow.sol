// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {Ledger} from "./Ledger.sol";

/// @title Deposits and refunds.
abstract contract Escrow is Ledger {
    function openJob(OpenParams calldata params) external override nonReentrant returns (uint256 jobId) {
        return _open(params);
    }

    function openJobWithPermit(OpenParams calldata params, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        override
        nonReentrant
        returns (uint256 jobId)
    {
        _permit(uint256(params.amount) * params.unit, deadline, v, r, s);
        return _open(params);
    }

    function topUp(uint256 jobId, uint64 amount) external override nonReentrant {
        _topUp(jobId, amount);
    }

    function topUpWithPermit(uint256 jobId, uint64 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        override
        nonReentrant
    {
        _permit(uint256(amount) * _job(jobId).unit, deadline, v, r, s);
        _topUp(jobId, amount);
    }

    function setSender(uint256 jobId, address sender) external override {
        _jobOfRequester(jobId).sender = sender;
        emit SenderSet(jobId, sender);
    }

    function withdrawFree(uint256 jobId, uint64 amount) external override nonReentrant {
        Job storage j = _jobOfRequester(jobId);
        uint64 available = _unreserved(j);
        if (amount > available) revert Overdrawn(available);
        _giveBack(jobId, j, amount);
    }

    function refund(uint256 jobId) external override nonReentrant returns (uint64 amount) {
        Job storage j = _jobOfRequester(jobId);
        _after(j.claimUntil);
        uint64 credited = j.credited;
        amount = j.deposited - credited;
        j.reserved = credited;
        _giveBack(jobId, j, amount);
    }

    function free(uint256 jobId) external view override returns (uint64) {
        Job storage j = _job(jobId);
        return j.deposited - (block.timestamp > j.claimUntil ? j.credited : j.reserved);
    }

    function _open(OpenParams calldata params) private returns (uint256 jobId) {
        _checkTerms(params);
        jobId = ++jobCount;
        Job storage j = _jobs[jobId];
        (j.requester, j.expiry, j.claimUntil) = (msg.sender, params.expiry, params.claimUntil);
        (j.unit, j.bond) = (params.unit, params.bond);
        (j.slashWindow, j.contestWindow, j.decisionWindow) =
        (params.slashWindow, params.contestWindow, params.decisionWindow);
        if (params.vestWindow != 0) {
            (j.vest, j.vestWindow, j.vestQuorum) = (params.vest, params.vestWindow, params.vestQuorum);
        }
        _addSigner(jobId, params.voucherSigner);
        uint64 arrived = _deposit(j, params.amount);
        emit JobOpened(jobId, msg.sender, arrived, params);
    }

    /// @dev Anyone can use up a permit before us, so its failure is no reason to stop: the transfer will tell.
    function _permit(uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) private {
        try IERC20Permit(address(token)).permit(msg.sender, address(this), value, deadline, v, r, s) {} catch {}
    }

    function _topUp(uint256 jobId, uint64 amount) private {
        Job storage j = _job(jobId);
        _until(j.expiry);
        emit Deposited(jobId, msg.sender, _deposit(j, amount));
    }

    function _checkTerms(OpenParams calldata params) private view {
        if (params.unit == 0) revert BadTerms();
        if (params.expiry <= block.timestamp) revert BadTerms();
        if (params.claimUntil < uint256(params.expiry) + minWindow) revert BadTerms();
        bool vests = params.vestWindow != 0;
        if (vests != (params.vest != 0) || vests != (params.vestQuorum != 0)) revert BadTerms();
        if (params.slashWindow != 0) {
            if (params.contestWindow < minWindow) revert BadTerms();
        } else if (!vests) {
            return;
        }
        if (params.decisionWindow < minWindow || params.bond == 0) revert BadTerms();
    }

    function _deposit(Job storage j, uint64 amount) private returns (uint64 arrived) {
        if (amount == 0) return 0;
        uint256 unit = j.unit;
        arrived = uint64(_pull(amount * unit) / unit);
        if (arrived == 0) revert NothingArrived();
        j.deposited += arrived;
    }
}
