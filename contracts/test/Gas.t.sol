// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../src/interfaces/IEscrow.sol";
import {IVouchers} from "../src/interfaces/IVouchers.sol";
import {Fixture} from "./Fixture.sol";
import {vm} from "./Vm.sol";

/// @dev What each move costs, as a transaction of its own; forge compares with snapshots/ and fails on a difference.
contract GasTest is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        token.mint(ana, 1);
        jobId = open();
    }

    /// @dev gas of the move as a transaction: 21,000, calldata at the price of EIP-7623, and execution from cold
    function measure(string memory name, address sender, bytes memory data) private returns (uint256) {
        vm.prank(sender);
        (bool done,) = address(market).call(data);
        vm.assertTrue(done);
        return vm.snapshotGasLastCall("gas", name);
    }

    function reservations(uint256 workers) private pure returns (bytes memory data) {
        for (uint256 i; i < workers; ++i) {
            data = bytes.concat(data, abi.encodePacked(worker(i), uint64(10_000)));
        }
    }

    function worker(uint256 i) private pure returns (address) {
        return address(bytes20(keccak256(abi.encode("worker", i))));
    }

    function batch(uint256 gradients, uint256 workers) private pure returns (bytes memory data) {
        for (uint256 i; i < workers; ++i) {
            data = bytes.concat(data, group(worker(i), 10, uint16(gradients / workers)));
        }
    }

    function settled(uint256 gradients, uint256 workers, string memory name) private returns (uint256) {
        vm.startPrank(requester);
        market.reserve(jobId, reservations(workers));
        market.settlePacked(jobId, 0, batch(workers, workers));
        vm.stopPrank();
        bytes memory data = abi.encodeCall(market.settlePacked, (jobId, 1, batch(gradients, workers)));
        return measure(name, requester, data);
    }

    /// forge-config: default.isolate = true
    function test_SettlePacked1000x8IsAtMost1310AGradient() external {
        vm.assertLe(settled(1000, 8, "settlePacked 1000x8") / 1000, 1310);
    }

    /// forge-config: default.isolate = true
    function test_SettlePacked100x8() external {
        settled(96, 8, "settlePacked 96x8");
    }

    /// @dev as contracts/log_heads.py packs it: a group of price 0 whose digests are root and size
    /// forge-config: default.isolate = true
    function test_LogHeadIsAtMost10400ABatch() external {
        uint256 without = settled(96, 8, "settlePacked 96x8");
        bytes memory head = abi.encodePacked(worker(8), uint48(0), uint16(2), keccak256("root"), uint256(10_000));
        bytes memory data = bytes.concat(batch(96, 8), head);
        bytes memory call = abi.encodeCall(market.settlePacked, (jobId, 2, data));
        vm.assertLe(measure("settlePacked 96x8 with a log head", requester, call) - without, 10_400);
    }

    /// forge-config: default.isolate = true
    function test_SettleRooted1000x8IsAtMost110AGradient() external {
        vm.startPrank(requester);
        market.reserve(jobId, reservations(8));
        market.settlePacked(jobId, 0, batch(8, 8));
        vm.stopPrank();
        bytes memory sums = reservations(8);
        bytes memory data = abi.encodeCall(market.settleRooted, (jobId, 1, keccak256("records"), sums));
        vm.assertLe(measure("settleRooted 1000x8", requester, data) / 1000, 110);
    }

    /// forge-config: default.isolate = true
    function test_Reserve8() external {
        measure("reserve 8 new", requester, abi.encodeCall(market.reserve, (jobId, reservations(8))));
        measure("reserve 8 again", requester, abi.encodeCall(market.reserve, (jobId, reservations(8))));
    }

    /// forge-config: default.isolate = true
    function test_RedeemIsAtMost75ForEachOf1000() external {
        reserve(jobId, ana, 10_000);
        bytes memory data = abi.encodeCall(market.redeem, (jobId, ana, 1000, voucher(jobId, ana, 1000)));
        vm.assertLe(measure("redeem", stranger, data) / 1000, 75);
    }

    /// forge-config: default.isolate = true
    function test_RedeemBatch8() external {
        IVouchers.SignedVoucher[] memory rows = new IVouchers.SignedVoucher[](8);
        for (uint256 i; i < 8; ++i) {
            reserve(jobId, worker(i), 10_000);
            rows[i] = IVouchers.SignedVoucher(jobId, worker(i), 1000, voucher(jobId, worker(i), 1000));
        }
        measure("redeemBatch 8", stranger, abi.encodeCall(market.redeemBatch, (rows)));
    }

    /// @dev of pay that vests: one storage read, of what is accused, once the lock has passed; none while it holds
    /// forge-config: default.isolate = true
    function test_RedemptionOfVestedPayReadsOneWordMore() external {
        uint256 plain = collected(0, "collect");
        jobId = openWith(vesting());
        vm.assertLe(collected(1, "collect vested") - plain, 2100 + 400);
        jobId = openWith(vesting());
        reserve(jobId, ana, 10_000);
        bytes memory data = abi.encodeCall(market.redeem, (jobId, ana, 1000, voucher(jobId, ana, 1000)));
        measure("redeem, the last 160 vest", stranger, data);
    }

    function collected(uint256 wait, string memory name) private returns (uint256) {
        reserve(jobId, ana, 10_000);
        settle(jobId, ana, 10, 100);
        vm.warp(block.timestamp + wait * 5 hours + wait);
        return measure(name, stranger, abi.encodeCall(market.collect, (jobId, ana)));
    }

    function vesting() private view returns (IEscrow.OpenParams memory params) {
        params = terms();
        (params.decisionWindow, params.bond) = (1 days, 50);
        (params.vest, params.vestWindow, params.vestQuorum) = (160, 5 hours, keccak256("quorum"));
    }

    /// forge-config: default.isolate = true
    function test_OpenReleaseRefund() external {
        measure("openJob", requester, abi.encodeCall(market.openJob, (terms())));
        reserve(jobId, ana, 10_000);
        measure("release", ana, abi.encodeCall(market.release, (jobId, 0)));
        vm.warp(CLAIM_UNTIL + 1);
        measure("refund", requester, abi.encodeCall(market.refund, (jobId)));
    }
}
