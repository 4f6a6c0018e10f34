// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {Signing} from "../Signing.sol";
import {bound, vm} from "../Vm.sol";

/// @dev A token that changes its fee, its gifts and its black list at any moment and re-enters. Every move may fail.
contract TokenPlay {
    uint256 public constant WORKERS = 2;
    uint256 private constant SIGNER_KEY = 0x51613E;
    uint64 private constant UNIT = 100;

    GradMarket public market;
    HostileToken public token;
    address[] public workers;
    uint256 public jobs;
    uint256 public reEntered;

    constructor() {
        vm.warp(1_000_000);
        token = new HostileToken();
        market = new GradMarket(IERC20(address(token)), 1 hours, keccak256("token play"));
        token.mint(address(this), 1e30);
        token.approve(address(market), type(uint256).max);
        (workers, jobs) = (new address[](WORKERS), 0);
        (workers[0], workers[1]) = (vm.addr(0xA000), vm.addr(0xA001));
        _open(1000);
    }

    function open(uint64 amount) external {
        if (jobs < 4) _open(uint64(bound(amount, 0, 10_000)));
    }

    function topUp(uint256 jobId, uint64 amount) external {
        _try(abi.encodeCall(market.topUp, (_job(jobId), uint64(bound(amount, 0, 10_000)))));
    }

    function reserve(uint256 jobId, uint256 pick, uint64 amount) external {
        jobId = _job(jobId);
        amount = uint64(bound(amount, 0, market.free(jobId)));
        _try(abi.encodeCall(market.reserve, (jobId, abi.encodePacked(workers[pick % WORKERS], amount))));
    }

    function settle(uint256 jobId, uint256 pick, uint48 price) external {
        jobId = _job(jobId);
        bytes memory data =
            abi.encodePacked(workers[pick % WORKERS], uint48(bound(price, 0, 500)), uint16(1), bytes32(0));
        _try(abi.encodeCall(market.settlePacked, (jobId, market.job(jobId).batches, data)));
    }

    function redeem(uint256 jobId, uint64 first, uint64 second, bool many) external {
        jobId = _job(jobId);
        IVouchers.SignedVoucher[] memory rows = new IVouchers.SignedVoucher[](2);
        rows[0] = _voucher(jobId, workers[0], uint64(bound(first, 0, 2000)));
        rows[1] = _voucher(jobId, workers[1], uint64(bound(second, 0, 2000)));
        if (many) _try(abi.encodeCall(market.redeemBatch, (rows)));
        else _try(abi.encodeCall(market.redeem, (jobId, workers[0], rows[0].cumulative, rows[0].signature)));
    }

    function collect(uint256 jobId, uint256 pick) external {
        _try(abi.encodeCall(market.collect, (_job(jobId), workers[pick % WORKERS])));
    }

    function withdrawFree(uint256 jobId) external {
        jobId = _job(jobId);
        _try(abi.encodeCall(market.withdrawFree, (jobId, market.free(jobId))));
    }

    function stake(uint128 amount) external {
        _try(abi.encodeCall(market.stake, (uint128(bound(amount, 0, 1e6)))));
    }

    function unstake(uint128 amount) external {
        _try(abi.encodeCall(market.unstake, (uint128(bound(amount, 0, market.staker(address(this)).amount)))));
    }

    function setFee(uint256 percent) external {
        token.setFee(bound(percent, 0, 100));
    }

    function setBonus(uint256 percent) external {
        token.setBonus(bound(percent, 0, 100));
    }

    function setBlacklisted(uint256 pick, bool listed) external {
        token.setBlacklisted(workers[pick % WORKERS], listed);
    }

    /// the next transfer calls back
    function armReEntry(uint256 jobId, uint256 kind) external {
        jobId = _job(jobId);
        bytes[4] memory moves = [
            abi.encodeCall(market.collect, (jobId, workers[0])),
            abi.encodeCall(market.topUp, (jobId, 1)),
            abi.encodeCall(market.stake, (1)),
            abi.encodeCall(market.redeemBatch, (new IVouchers.SignedVoucher[](0)))
        ];
        token.setHook(address(market), moves[kind % 4]);
    }

    function _open(uint64 amount) private {
        IEscrow.OpenParams memory params;
        (params.amount, params.unit, params.voucherSigner) = (amount, UNIT, vm.addr(SIGNER_KEY));
        (params.expiry, params.claimUntil) = (1_000_000 + 365 days, 1_000_000 + 366 days);
        if (_try(abi.encodeCall(market.openJob, (params)))) ++jobs;
    }

    function _voucher(uint256 jobId, address worker, uint64 cumulative)
        private
        view
        returns (IVouchers.SignedVoucher memory)
    {
        bytes memory signature = Signing.voucher(market, SIGNER_KEY, jobId, worker, cumulative);
        return IVouchers.SignedVoucher(jobId, worker, cumulative, signature);
    }

    function _job(uint256 seed) private view returns (uint256) {
        return bound(seed, 1, jobs);
    }

    function _try(bytes memory move) private returns (bool succeeded) {
        (succeeded,) = address(market).call(move);
        if (token.hookSucceeded()) ++reEntered;
    }
}
