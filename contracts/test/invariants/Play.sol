// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {GradToken} from "../../src/GradToken.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Signing} from "../Signing.sol";
import {bound, vm} from "../Vm.sol";

/// @dev A requester and three workers that play by the rules, in any order. What workers earned is counted here,
/// off-chain; vouchers are signed and batches filled from that count and never from the contract's state. No move here
/// may revert.
contract Play {
    uint256 public constant WORKERS = 3;
    uint256 public constant JOBS = 2;
    uint256 internal constant SIGNER_KEY = 0x51613E;
    uint64 internal constant UNIT = 1e3;
    uint48 internal constant LIFE = 8 hours;
    uint48 internal constant CLAIM = 6 hours;

    struct Work {
        address worker;
        uint48 price;
        uint16 count;
    }

    GradMarket public market;
    GradToken public token;
    address[] public workers;
    uint256[] internal _keys;
    uint256 public deposited;
    uint256 public refunded;
    mapping(uint256 jobId => mapping(address worker => uint64)) public earned;
    mapping(uint256 jobId => mapping(address worker => uint64)) public batched;
    /// what reservations and releases add up to
    mapping(uint256 jobId => mapping(address worker => uint64)) public promised;
    mapping(uint256 jobId => uint64) public batches;
    mapping(uint256 jobId => bytes32) public termsAtOpening;
    mapping(uint256 jobId => mapping(address worker => uint64[])) internal _vouchers;
    mapping(uint256 jobId => Work[]) internal _unsettled;
    /// workers that have signed a release that is still good: they take no more work
    mapping(uint256 jobId => mapping(address worker => bool)) public leaving;

    constructor() {
        vm.warp(1_000_000);
        token = new GradToken("Gradient", "GRAD", 18, type(uint128).max);
        market = new GradMarket(IERC20(address(token)), CLAIM, keccak256("play"));
        token.approve(address(market), type(uint256).max);
        for (uint256 i; i < WORKERS; ++i) {
            _keys.push(0xA000 + i);
            workers.push(vm.addr(0xA000 + i));
        }
        for (uint48 i; i < JOBS; ++i) {
            _open(uint48(block.timestamp) + LIFE + i * 4 hours);
        }
    }

    function topUp(uint256 jobId, uint64 amount) external {
        jobId = _pickJob(jobId);
        if (block.timestamp > market.job(jobId).expiry) return;
        amount = uint64(bound(amount, 1, 10_000));
        market.topUp(jobId, amount);
        deposited += amount;
    }

    function reserve(uint256 jobId, uint256 worker, uint64 amount) external {
        jobId = _pickJob(jobId);
        if (block.timestamp > market.job(jobId).expiry) return;
        amount = uint64(bound(amount, 0, market.free(jobId)));
        market.reserve(jobId, abi.encodePacked(_pickWorker(worker), amount));
        promised[jobId][_pickWorker(worker)] += amount;
    }

    /// a worker computes against its own reservation and gets a voucher for the sum of all it earned
    function earn(uint256 jobId, uint256 pick, uint48 price, uint16 count) external {
        jobId = _pickJob(jobId);
        address worker = _pickWorker(pick);
        (price, count) = (uint48(bound(price, 1, 400)), uint16(bound(count, 1, 4)));
        uint64 after_ = earned[jobId][worker] + uint64(price) * count;
        bool worthIt = !leaving[jobId][worker] && market.account(jobId, worker).reserved >= after_;
        if (!worthIt || block.timestamp > market.job(jobId).expiry) return;
        earned[jobId][worker] = after_;
        _vouchers[jobId][worker].push(after_);
        _unsettled[jobId].push(Work(worker, price, count));
    }

    /// a batch with the last few records that were in no batch, with each record or with its sum
    function settle(uint256 jobId, uint256 records, bool rooted) external {
        jobId = _pickJob(jobId);
        Work[] storage open = _unsettled[jobId];
        if (open.length == 0 || block.timestamp > market.job(jobId).claimUntil) return;
        bytes memory data;
        for (records = bound(records, 1, open.length); records > 0; --records) {
            Work memory work = open[open.length - 1];
            open.pop();
            uint64 sum = uint64(work.price) * work.count;
            batched[jobId][work.worker] += sum;
            data = bytes.concat(data, rooted ? abi.encodePacked(work.worker, sum) : _group(work));
        }
        uint64 batch = batches[jobId]++;
        if (rooted) market.settleRooted(jobId, batch, keccak256(data), data);
        else market.settlePacked(jobId, batch, data);
    }

    function _group(Work memory work) private pure returns (bytes memory) {
        return bytes.concat(abi.encodePacked(work.worker, work.price, work.count), new bytes(32 * work.count));
    }

    /// any voucher a worker ever got, sent by anyone
    function redeem(uint256 jobId, uint256 pick, uint256 which) external {
        jobId = _pickJob(jobId);
        address worker = _pickWorker(pick);
        uint64[] storage vouchers = _vouchers[jobId][worker];
        if (vouchers.length == 0 || block.timestamp > market.job(jobId).claimUntil) return;
        _redeem(jobId, worker, vouchers[bound(which, 0, vouchers.length - 1)]);
    }

    /// the newest vouchers of all workers of a job, in one call
    function redeemMany(uint256 jobId) external {
        jobId = _pickJob(jobId);
        IVouchers.SignedVoucher[] memory rows = new IVouchers.SignedVoucher[](WORKERS);
        for (uint256 i; i < WORKERS; ++i) {
            uint64 all = earned[jobId][workers[i]];
            bytes memory signature = Signing.voucher(market, SIGNER_KEY, jobId, workers[i], all);
            rows[i] = IVouchers.SignedVoucher(jobId, workers[i], all, signature);
        }
        market.redeemBatch(rows);
    }

    function collect(uint256 jobId, uint256 worker) external {
        market.collect(_pickJob(jobId), _pickWorker(worker));
    }

    /// a worker gives back, never below what it earned
    function release(uint256 jobId, uint256 pick, uint64 to, bool signed) external {
        jobId = _pickJob(jobId);
        if (block.timestamp > market.job(jobId).claimUntil) return;
        address worker = _pickWorker(pick);
        uint64 least = earned[jobId][worker];
        uint64 reserved = market.account(jobId, worker).reserved;
        to = uint64(bound(to, least, reserved));
        if (signed) {
            uint64 nonce = market.releaseNonce(jobId, worker);
            market.releaseFor(jobId, worker, to, nonce, _signRelease(jobId, worker, to, nonce));
        } else {
            vm.prank(worker);
            market.release(jobId, to);
        }
        leaving[jobId][worker] = false;
        promised[jobId][worker] = to;
    }

    function withdrawFree(uint256 jobId, uint64 amount) external {
        jobId = _pickJob(jobId);
        ILedger.Job memory j = market.job(jobId);
        amount = uint64(bound(amount, 0, j.deposited - j.reserved));
        market.withdrawFree(jobId, amount);
        refunded += amount;
    }

    function refund(uint256 jobId) external {
        jobId = _pickJob(jobId);
        if (block.timestamp <= market.job(jobId).claimUntil) return;
        refunded += market.refund(jobId);
    }

    /// time passes; a worker redeems before it runs out
    function wait(uint256 time) external {
        uint256 then = block.timestamp + bound(time, 0, 10 hours);
        for (uint256 jobId = 1; jobId <= JOBS; ++jobId) {
            uint256 last = market.job(jobId).claimUntil;
            if (block.timestamp <= last && then > last) _redeemAll(jobId);
        }
        vm.warp(then);
    }

    function redeemAll() external {
        for (uint256 jobId = 1; jobId <= JOBS; ++jobId) {
            if (block.timestamp <= market.job(jobId).claimUntil) _redeemAll(jobId);
        }
    }

    function _redeemAll(uint256 jobId) internal {
        for (uint256 i; i < WORKERS; ++i) {
            uint64 all = earned[jobId][workers[i]];
            if (all != 0) _redeem(jobId, workers[i], all);
        }
    }

    function _redeem(uint256 jobId, address worker, uint64 cumulative) internal {
        market.redeem(jobId, worker, cumulative, Signing.voucher(market, SIGNER_KEY, jobId, worker, cumulative));
    }

    function _signRelease(uint256 jobId, address worker, uint64 to, uint64 nonce) internal view returns (bytes memory) {
        for (uint256 i; i < WORKERS; ++i) {
            if (workers[i] == worker) return Signing.release(market, _keys[i], jobId, worker, to, nonce);
        }
        return "";
    }

    function _open(uint48 expiry) private {
        IEscrow.OpenParams memory params;
        (params.amount, params.unit, params.expiry, params.claimUntil) = (50_000, UNIT, expiry, expiry + CLAIM);
        params.voucherSigner = vm.addr(SIGNER_KEY);
        uint256 jobId = market.openJob(params);
        termsAtOpening[jobId] = termsOf(market.job(jobId));
        deposited += 50_000;
    }

    /// @dev all that may never change
    function termsOf(ILedger.Job memory j) public pure returns (bytes32) {
        return keccak256(abi.encode(j.requester, j.claimUntil, j.unit, j.bond, j.slashWindow, j.contestWindow));
    }

    function _pickJob(uint256 seed) internal pure returns (uint256) {
        return bound(seed, 1, JOBS);
    }

    function _pickWorker(uint256 seed) internal view returns (address) {
        return workers[bound(seed, 0, WORKERS - 1)];
    }
}
