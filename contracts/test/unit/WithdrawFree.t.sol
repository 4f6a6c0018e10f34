// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract WithdrawFreeTest is Fixture {
    function withdraw(uint256 jobId, uint64 amount) private {
        vm.prank(requester);
        market.withdrawFree(jobId, amount);
    }

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        uint256 jobId = open();
        vm.expectRevert(ILedger.NotRequester.selector);
        vm.prank(stranger);
        market.withdrawFree(jobId, 1);
    }

    function test_RevertWhen_MoreThanIsFreeIsAsked() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, DEPOSIT - 10));
        withdraw(jobId, DEPOSIT - 9);
    }

    function test_WhenClaimUntilHasPassed() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.warp(CLAIM_UNTIL + 1);
        withdraw(jobId, DEPOSIT - 10);
        vm.assertEq(market.free(jobId), 10);
    }

    function test_PayTheRequester() external {
        uint256 jobId = open();
        uint256 before = balance(requester);
        vm.expectEmit();
        emit IEscrow.Refunded(jobId, 30);
        withdraw(jobId, 30);
        vm.assertEq(balance(requester), before + 30);
        vm.assertEq(market.job(jobId).deposited, DEPOSIT - 30);
    }

    function test_LeaveReservationsWhole() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        withdraw(jobId, DEPOSIT - 10);
        vm.assertEq(redeem(jobId, ana, 10), 10);
        vm.assertEq(balance(ana), 10);
    }
}
