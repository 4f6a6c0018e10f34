// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Ledger} from "./Ledger.sol";
import {Packed} from "./libraries/Packed.sol";

/// @title Deposits, reservations, releases and refunds.
abstract contract Escrow is Ledger {
    using SafeERC20 for IERC20;

    bytes32 private constant RELEASE_TYPEHASH =
        keccak256("Release(bytes32 instance,uint256 job,address worker,uint64 reserved,uint64 nonce)");

    mapping(uint256 jobId => mapping(address worker => uint64)) public override releaseNonce;

    function openJob(OpenParams calldata params) external override nonReentrant returns (uint256 jobId) {
        return _open(params);
    }

    function topUp(uint256 jobId, uint64 amount) external override nonReentrant {
        _topUp(jobId, amount);
    }

    function setSender(uint256 jobId, address sender) external override {
        _jobOfRequester(jobId).sender = sender;
        emit SenderSet(jobId, sender);
    }

    function reserve(uint256 jobId, bytes calldata data) external override {
        Job storage j = _jobOfSender(jobId);
        _until(j.expiry);
        uint256 rows = Packed.rows(data, Packed.RESERVATION);
        uint256 added;
        uint64 credited;
        for (uint256 i; i < rows; ++i) {
            (address worker, uint64 amount) = Packed.reservation(data, i);
            credited += _reserve(jobId, worker, amount);
            added += amount;
        }
        uint64 available = j.deposited - j.reserved;
        if (added > available) revert Overdrawn(available);
        j.reserved += uint64(added);
        j.credited += credited;
    }

    function release(uint256 jobId, uint64 reserved) external override {
        _release(jobId, msg.sender, reserved);
    }

    function releaseFor(uint256 jobId, address worker, uint64 reserved, uint64 nonce, bytes calldata signature)
        external
        override
    {
        address signer = _signerOf(_releaseHash(jobId, worker, reserved, nonce), signature);
        if (signer == address(0) || signer != worker || nonce != releaseNonce[jobId][worker]) revert BadSignature();
        _release(jobId, worker, reserved);
    }

    function withdrawFree(uint256 jobId, uint64 amount) external override nonReentrant {
        Job storage j = _jobOfRequester(jobId);
        uint64 available = j.deposited - j.reserved;
        if (amount > available) revert Overdrawn(available);
        j.deposited -= amount;
        _giveBack(jobId, j, amount);
    }

    function refund(uint256 jobId) external override nonReentrant returns (uint64 amount) {
        Job storage j = _jobOfRequester(jobId);
        _after(j.claimUntil);
        uint64 credited = j.credited;
        amount = j.deposited - credited;
        (j.deposited, j.reserved) = (credited, credited);
        _giveBack(jobId, j, amount);
    }

    function free(uint256 jobId) external view override returns (uint64) {
        Job storage j = _job(jobId);
        return j.deposited - (block.timestamp > j.claimUntil ? j.credited : j.reserved);
    }

    function hashRelease(uint256 jobId, address worker, uint64 reserved, uint64 nonce)
        external
        view
        override
        returns (bytes32)
    {
        return _hashTypedDataV4(_releaseHash(jobId, worker, reserved, nonce));
    }

    function _open(OpenParams calldata params) internal returns (uint256 jobId) {
        _checkTerms(params);
        jobId = ++jobCount;
        Job storage j = _jobs[jobId];
        (j.requester, j.expiry, j.claimUntil) = (msg.sender, params.expiry, params.claimUntil);
        (j.unit, j.bond) = (params.unit, params.bond);
        (j.slashWindow, j.contestWindow, j.decisionWindow) =
            (params.slashWindow, params.contestWindow, params.decisionWindow);
        _addSigner(jobId, params.voucherSigner);
        uint64 arrived = _deposit(j, params.amount);
        emit JobOpened(jobId, msg.sender, arrived, params);
    }

    function _topUp(uint256 jobId, uint64 amount) internal {
        Job storage j = _job(jobId);
        _until(j.expiry);
        emit Deposited(jobId, msg.sender, _deposit(j, amount));
    }

    function _addSigner(uint256 jobId, address signer) internal virtual;

    function _checkTerms(OpenParams calldata params) private view {
        if (params.unit == 0 || params.voucherSigner == address(0)) revert BadTerms();
        if (params.expiry <= block.timestamp) revert BadTerms();
        if (params.claimUntil < uint256(params.expiry) + minWindow) revert BadTerms();
        if (params.slashWindow == 0) return;
        if (params.contestWindow < minWindow || params.decisionWindow < minWindow || params.bond == 0) revert BadTerms();
    }

    function _deposit(Job storage j, uint64 amount) private returns (uint64 arrived) {
        if (amount == 0) return 0;
        uint256 unit = j.unit;
        arrived = uint64(_pull(amount * unit) / unit);
        if (arrived == 0) revert NothingArrived();
        j.deposited += arrived;
    }

    /// @return newlyCredited what a batch or voucher beyond the old reservation gains by the new one
    function _reserve(uint256 jobId, address worker, uint64 amount) private returns (uint64 newlyCredited) {
        Account storage stored = _accounts[jobId][worker];
        Account memory a = stored;
        uint64 before = _credited(a);
        a.reserved += amount;
        stored.reserved = a.reserved;
        emit Reserved(jobId, worker, amount, a.reserved);
        return _credited(a) - before;
    }

    function _release(uint256 jobId, address worker, uint64 reserved) private {
        Job storage j = _job(jobId);
        _until(j.claimUntil);
        Account storage stored = _accounts[jobId][worker];
        Account memory a = stored;
        uint64 least = _credited(a);
        if (reserved < least) reserved = least;
        if (reserved > a.reserved) reserved = a.reserved;
        stored.reserved = reserved;
        j.reserved -= a.reserved - reserved;
        emit Released(jobId, worker, reserved, releaseNonce[jobId][worker]++);
    }

    function _giveBack(uint256 jobId, Job storage j, uint64 amount) private {
        emit Refunded(jobId, amount);
        token.safeTransfer(j.requester, uint256(amount) * j.unit);
    }

    function _releaseHash(uint256 jobId, address worker, uint64 reserved, uint64 nonce) private view returns (bytes32) {
        return keccak256(abi.encode(RELEASE_TYPEHASH, INSTANCE, jobId, worker, reserved, nonce));
    }
}
