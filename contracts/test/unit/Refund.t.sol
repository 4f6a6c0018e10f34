// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract RefundTest is Fixture {
    function refund(uint256 jobId) private returns (uint64) {
        vm.prank(requester);
        return market.refund(jobId);
    }

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        uint256 jobId = open();
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(ILedger.NotRequester.selector);
        vm.prank(stranger);
        market.refund(jobId);
    }

    function test_RevertWhen_ClaimUntilHasNotPassed() external {
        uint256 jobId = open();
        vm.warp(CLAIM_UNTIL);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooEarly.selector, CLAIM_UNTIL + 1));
        refund(jobId);
    }

    function test_WhenItWasRefundedBefore() external {
        uint256 jobId = open();
        vm.warp(CLAIM_UNTIL + 1);
        vm.assertEq(refund(jobId), DEPOSIT);
        vm.assertEq(refund(jobId), 0);
        vm.assertEq(market.free(jobId), 0);
    }

    function test_PayAllThatWasNotCredited() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        reserve(jobId, ben, 10);
        settle(jobId, ana, 4, 1);
        redeem(jobId, ben, 3);
        vm.warp(CLAIM_UNTIL + 1);
        uint256 before = balance(requester);
        vm.expectEmit();
        emit IEscrow.Refunded(jobId, DEPOSIT - 7);
        vm.assertEq(refund(jobId), DEPOSIT - 7);
        vm.assertEq(balance(requester), before + DEPOSIT - 7);
    }

    function test_LeaveWhatWasCreditedForEver() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 1);
        vm.warp(CLAIM_UNTIL + 1);
        refund(jobId);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, 0));
        vm.prank(requester);
        market.withdrawFree(jobId, 1);
        vm.warp(CLAIM_UNTIL + 3650 days);
        vm.assertEq(market.collect(jobId, ana), 4);
        vm.assertEq(token.balanceOf(address(market)), 0);
    }

    function test_ShowInFreeBeforeItIsTaken() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 1);
        vm.warp(CLAIM_UNTIL);
        vm.assertEq(market.free(jobId), DEPOSIT - 10);
        vm.warp(CLAIM_UNTIL + 1);
        vm.assertEq(market.free(jobId), DEPOSIT - 4);
    }
}
