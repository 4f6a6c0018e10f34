// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract RedeemBatchTest is Fixture {
    uint256 private jobId;
    IVouchers.SignedVoucher[] private _rows;

    function setUp() public override {
        super.setUp();
        prepare();
    }

    function prepare() private {
        jobId = open();
        reserve(jobId, ana, 10);
        reserve(jobId, ben, 10);
    }

    function add(address worker, uint64 cumulative) private {
        _rows.push(IVouchers.SignedVoucher(jobId, worker, cumulative, voucher(jobId, worker, cumulative)));
    }

    function sendAnd(uint256 index, bytes4 reason) private {
        IVouchers.SignedVoucher memory row = _rows[index];
        vm.expectEmit();
        emit IVouchers.VoucherSkipped(row.jobId, row.worker, index, reason);
        market.redeemBatch(_rows);
    }

    function test_WhenARowIsOfNoJob() external {
        add(ana, 4);
        _rows[0].jobId = 77;
        add(ben, 5);
        sendAnd(0, ILedger.NoSuchJob.selector);
        vm.assertEq(balance(ben), 5);
    }

    function test_WhenARowComesTooLate() external {
        add(ana, 4);
        vm.warp(CLAIM_UNTIL);
        market.redeemBatch(_rows);
        vm.assertEq(balance(ana), 4);
        add(ben, 4);
        vm.warp(CLAIM_UNTIL + 1);
        sendAnd(1, ILedger.TooLate.selector);
        vm.assertEq(balance(ben), 0);
    }

    function test_WhenARowIsSignedByAnotherKey() external {
        add(ana, 4);
        _rows[0].cumulative = 5;
        add(ben, 5);
        sendAnd(0, ILedger.BadSignature.selector);
        vm.assertEq(balance(ana), 0);
        vm.assertEq(balance(ben), 5);
    }

    function test_ReportItAndPayTheOthers() external {
        HostileToken hostile = refusing();
        add(ana, 4);
        add(ben, 5);
        sendAnd(0, IVouchers.PaymentFailed.selector);
        vm.assertEq(hostile.balanceOf(ben), 5 * UNIT);
    }

    function test_KeepWhatIsDue() external {
        HostileToken hostile = refusing();
        add(ana, 4);
        market.redeemBatch(_rows);
        vm.assertEq(market.due(jobId, ana), 4);
        vm.assertEq(market.job(jobId).credited, 4);
        vm.warp(CLAIM_UNTIL + 1);
        vm.prank(requester);
        market.refund(jobId);
        hostile.setBlacklisted(ana, false);
        vm.assertEq(market.collect(jobId, ana), 4);
    }

    function test_WhenAWorkerStandsTwice() external {
        add(ana, 4);
        add(ana, 6);
        add(ana, 4);
        vm.recordLogs();
        market.redeemBatch(_rows);
        vm.assertEq(vm.getRecordedLogs().length, 4);
        vm.assertEq(balance(ana), 6);
        vm.assertEq(market.account(jobId, ana).withdrawn, 6);
    }

    function test_WhenAllRowsAreGood() external {
        add(ana, 4);
        add(ben, 50);
        vm.expectEmit();
        emit IVouchers.Paid(jobId, ana, ana, 4);
        vm.expectEmit();
        emit IVouchers.Paid(jobId, ben, ben, 10);
        vm.recordLogs();
        market.redeemBatch(_rows);
        vm.assertEq(balance(ana), 4);
        vm.assertEq(balance(ben), 10);
        vm.assertEq(vm.getRecordedLogs().length, 4);
    }

    function refusing() private returns (HostileToken hostile) {
        hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(requester, 1e30);
        vm.prank(requester);
        hostile.approve(address(market), type(uint256).max);
        prepare();
        hostile.setBlacklisted(ana, true);
    }
}
