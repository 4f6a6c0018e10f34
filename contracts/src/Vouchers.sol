// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Ledger} from "./Ledger.sol";
import {AccountWord} from "./libraries/AccountWord.sol";

/// @title Vouchers and pay-out.
abstract contract Vouchers is Ledger {
    using SafeERC20 for IERC20;

    bytes32 private constant VOUCHER_TYPEHASH =
        keccak256("Voucher(bytes32 instance,uint256 job,address worker,uint64 cumulative)");

    bytes32 private constant PAYOUT_TYPEHASH =
        keccak256("Payout(bytes32 instance,address worker,address payout,uint64 nonce)");

    mapping(uint256 jobId => mapping(address signer => bool)) public override isSigner;
    mapping(address worker => uint64) public override payoutNonce;
    mapping(address worker => address) private _payouts;

    function redeem(uint256 jobId, address worker, uint64 cumulative, bytes calldata signature)
        external
        override
        nonReentrant
        returns (uint64 amount)
    {
        Job storage j = _job(jobId);
        _until(j.claimUntil);
        if (!_isVoucher(jobId, worker, cumulative, signature)) revert BadSignature();
        amount = _take(j, jobId, worker, cumulative);
        _pay(j, jobId, worker, amount);
    }

    function redeemBatch(SignedVoucher[] calldata vouchers) external override nonReentrant {
        for (uint256 i; i < vouchers.length; ++i) {
            SignedVoucher calldata row = vouchers[i];
            bytes4 refusal = _tryRedeem(row);
            if (refusal != 0) emit VoucherSkipped(row.jobId, row.worker, i, refusal);
        }
    }

    function collect(uint256 jobId, address worker) external override nonReentrant returns (uint64 amount) {
        Job storage j = _job(jobId);
        amount = _take(j, jobId, worker, 0);
        _pay(j, jobId, worker, amount);
    }

    function setPayout(address payout) external override {
        _setPayout(msg.sender, payout);
    }

    function setPayoutFor(address worker, address payout, uint64 nonce, bytes calldata signature) external override {
        address signer = _signerOf(_payoutHash(worker, payout, nonce), signature);
        if (signer == address(0) || signer != worker || nonce != payoutNonce[worker]) revert BadSignature();
        _setPayout(worker, payout);
    }

    function addSigner(uint256 jobId, address signer) external override {
        _jobOfRequester(jobId);
        _addSigner(jobId, signer);
        emit SignerAdded(jobId, signer);
    }

    function payoutOf(address worker) public view override returns (address) {
        address payout = _payouts[worker];
        return payout == address(0) ? worker : payout;
    }

    function due(uint256 jobId, address worker) external view override returns (uint64) {
        return _free(_jobs[jobId], jobId, worker, AccountWord.read(_accounts[jobId][worker]));
    }

    function _addSigner(uint256 jobId, address signer) internal override {
        if (signer == address(0)) revert BadTerms();
        isSigner[jobId][signer] = true;
    }

    /// @dev Taking a nonce voids what was signed before.
    function _setPayout(address worker, address payout) private {
        if (payout == address(this)) revert BadPayout();
        ++payoutNonce[worker];
        _payouts[worker] = payout;
        emit PayoutSet(worker, payout);
    }

    /// @return refusal the selector of what `redeem` would fail with; 0 when all that is due was paid
    function _tryRedeem(SignedVoucher calldata row) private returns (bytes4 refusal) {
        Job storage j = _jobs[row.jobId];
        if (j.requester == address(0)) return NoSuchJob.selector;
        if (block.timestamp > j.claimUntil) return TooLate.selector;
        if (!_isVoucher(row.jobId, row.worker, row.cumulative, row.signature)) return BadSignature.selector;
        uint64 amount = _take(j, row.jobId, row.worker, row.cumulative);
        return _tryPay(j, row.jobId, row.worker, amount) ? bytes4(0) : PaymentFailed.selector;
    }

    /// @dev Raises `vouchered` to `cumulative` and marks as withdrawn all that is due. A voucher beyond what any
    /// reservation holds counts as the most that one does.
    function _take(Job storage j, uint256 jobId, address worker, uint64 cumulative) private returns (uint64 amount) {
        Account storage stored = _accounts[jobId][worker];
        uint256 row = AccountWord.read(stored);
        if (cumulative > AccountWord.vouchered(row)) {
            uint64 before = AccountWord.credited(row);
            uint64 grown;
            if (cumulative > AccountWord.MOST) cumulative = uint64(AccountWord.MOST);
            uint64 more = cumulative - AccountWord.vouchered(row);
            (row, grown) = AccountWord.stamped(AccountWord.add(row, more, AccountWord.VOUCHERED), before);
            if (grown != 0) j.credited += grown;
        }
        amount = _free(j, jobId, worker, row);
        AccountWord.write(stored, AccountWord.add(row, amount, AccountWord.WITHDRAWN));
    }

    /// @dev locked money is unpaid
    function _free(Job storage j, uint256 jobId, address worker, uint256 row) private view returns (uint64) {
        unchecked {
            return AccountWord.unpaid(row) - _locked(j, jobId, worker, row);
        }
    }

    function _pay(Job storage j, uint256 jobId, address worker, uint64 amount) private {
        if (amount == 0) return;
        address to = payoutOf(worker);
        emit Paid(jobId, worker, to, amount);
        token.safeTransfer(to, uint256(amount) * j.unit);
    }

    /// @dev What the token refuses to pay stays due.
    function _tryPay(Job storage j, uint256 jobId, address worker, uint64 amount) private returns (bool paid) {
        if (amount == 0) return true;
        address to = payoutOf(worker);
        paid = token.trySafeTransfer(to, uint256(amount) * j.unit);
        if (paid) emit Paid(jobId, worker, to, amount);
        else _accounts[jobId][worker].withdrawn -= uint56(amount);
    }

    function _isVoucher(uint256 jobId, address worker, uint64 cumulative, bytes calldata signature)
        private
        view
        returns (bool)
    {
        return isSigner[jobId][_signerOf(_voucherHash(jobId, worker, cumulative), signature)];
    }

    function _voucherHash(uint256 jobId, address worker, uint64 cumulative) private view returns (bytes32) {
        return keccak256(abi.encode(VOUCHER_TYPEHASH, INSTANCE, jobId, worker, cumulative));
    }

    function _payoutHash(address worker, address payout, uint64 nonce) private view returns (bytes32) {
        return keccak256(abi.encode(PAYOUT_TYPEHASH, INSTANCE, worker, payout, nonce));
    }
}
