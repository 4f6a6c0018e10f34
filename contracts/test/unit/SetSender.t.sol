// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract SetSenderTest is Fixture {
    address private immutable hot = vm.addr(0x407);

    function set(uint256 jobId, address sender) private {
        vm.prank(requester);
        market.setSender(jobId, sender);
    }

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        uint256 jobId = open();
        set(jobId, hot);
        vm.expectRevert(ILedger.NotRequester.selector);
        vm.prank(hot);
        market.setSender(jobId, stranger);
    }

    function test_LetTheSenderReserveAndSettle() external {
        uint256 jobId = open();
        vm.expectEmit();
        emit IEscrow.SenderSet(jobId, hot);
        set(jobId, hot);
        vm.startPrank(hot);
        market.reserve(jobId, abi.encodePacked(ana, uint64(10)));
        market.settlePacked(jobId, 0, group(ana, 5, 2));
        vm.stopPrank();
        vm.assertEq(market.due(jobId, ana), 10);
    }

    function test_LetTheSenderTakeNothingOut() external {
        uint256 jobId = open();
        set(jobId, hot);
        vm.startPrank(hot);
        vm.expectRevert(ILedger.NotRequester.selector);
        market.withdrawFree(jobId, 1);
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(ILedger.NotRequester.selector);
        market.refund(jobId);
        vm.stopPrank();
    }

    function test_StopTheOneBefore() external {
        uint256 jobId = open();
        set(jobId, hot);
        set(jobId, stranger);
        vm.expectRevert(ILedger.NotSender.selector);
        vm.prank(hot);
        market.reserve(jobId, abi.encodePacked(ana, uint64(10)));
    }
}
