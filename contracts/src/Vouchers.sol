// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Ledger} from "./Ledger.sol";

/// @title Vouchers and pay-out.
abstract contract Vouchers is Ledger {
    using SafeERC20 for IERC20;

    bytes32 private constant VOUCHER_TYPEHASH =
        keccak256("Voucher(bytes32 instance,uint256 job,address worker,uint64 cumulative)");

    mapping(uint256 jobId => mapping(address signer => bool)) public override isSigner;
    mapping(address worker => address) private _payouts;

    function redeem(uint256 jobId, address worker, uint64 cumulative, bytes calldata signature)
        external
        override
        nonReentrant
        returns (uint64 amount)
    {
        Job storage j = _job(jobId);
        _until(j.claimUntil);
        if (!isSigner[jobId][_signerOf(_voucherHash(jobId, worker, cumulative), signature)]) revert BadSignature();
        amount = _take(j, jobId, worker, cumulative);
        _pay(j, jobId, worker, amount);
    }

    function collect(uint256 jobId, address worker) external override nonReentrant returns (uint64 amount) {
        Job storage j = _job(jobId);
        amount = _take(j, jobId, worker, 0);
        _pay(j, jobId, worker, amount);
    }

    function setPayout(address payout) external override {
        _setPayout(msg.sender, payout);
    }

    function payoutOf(address worker) public view override returns (address) {
        address payout = _payouts[worker];
        return payout == address(0) ? worker : payout;
    }

    function due(uint256 jobId, address worker) external view override returns (uint64) {
        Account memory a = _accounts[jobId][worker];
        return _credited(a) - a.withdrawn;
    }

    function hashVoucher(uint256 jobId, address worker, uint64 cumulative) external view override returns (bytes32) {
        return _hashTypedDataV4(_voucherHash(jobId, worker, cumulative));
    }

    function _addSigner(uint256 jobId, address signer) internal virtual {
        isSigner[jobId][signer] = true;
    }

    function _setPayout(address worker, address payout) internal {
        if (payout == address(this)) revert BadPayout();
        _payouts[worker] = payout;
        emit PayoutSet(worker, payout);
    }

    /// @dev Raises `vouchered` to `cumulative` and marks as withdrawn all that is due.
    function _take(Job storage j, uint256 jobId, address worker, uint64 cumulative) internal returns (uint64 amount) {
        Account memory a = _accounts[jobId][worker];
        uint64 before = _credited(a);
        if (cumulative > a.vouchered) a.vouchered = cumulative;
        uint64 credited = _credited(a);
        amount = credited - a.withdrawn;
        a.withdrawn = credited;
        _accounts[jobId][worker] = a;
        if (credited != before) j.credited += credited - before;
    }

    function _pay(Job storage j, uint256 jobId, address worker, uint64 amount) internal {
        if (amount == 0) return;
        address to = payoutOf(worker);
        emit Paid(jobId, worker, to, amount);
        token.safeTransfer(to, uint256(amount) * j.unit);
    }

    function _voucherHash(uint256 jobId, address worker, uint64 cumulative) internal view returns (bytes32) {
        return keccak256(abi.encode(VOUCHER_TYPEHASH, INSTANCE, jobId, worker, cumulative));
    }
}
