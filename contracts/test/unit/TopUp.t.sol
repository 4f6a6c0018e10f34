// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract TopUpTest is Fixture {
    function topUp(uint256 jobId, uint64 amount) private {
        vm.prank(requester);
        market.topUp(jobId, amount);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        topUp(1, 5);
    }

    function test_RevertWhen_TheJobHasExpired() external {
        uint256 jobId = open();
        vm.warp(EXPIRY + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, EXPIRY));
        topUp(jobId, 5);
    }

    function test_WhenItIsTheLastSecond() external {
        uint256 jobId = open();
        vm.warp(EXPIRY);
        topUp(jobId, 5);
        vm.assertEq(market.free(jobId), DEPOSIT + 5);
    }

    function test_WhenTheTokenTakesAFee() external {
        HostileToken hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(requester, 1e30);
        vm.prank(requester);
        hostile.approve(address(market), type(uint256).max);
        uint256 jobId = open();
        hostile.setFee(50);
        topUp(jobId, 11);
        vm.assertEq(market.free(jobId), DEPOSIT + 5);
    }

    function test_WhenAStrangerPays() external {
        uint256 jobId = open();
        token.mint(stranger, 7 * UNIT);
        vm.startPrank(stranger);
        token.approve(address(market), 7 * UNIT);
        vm.expectEmit();
        emit IEscrow.Deposited(jobId, stranger, 7);
        market.topUp(jobId, 7);
        vm.stopPrank();
        vm.assertEq(market.job(jobId).deposited, DEPOSIT + 7);
        vm.assertEq(balance(stranger), 0);
    }
}
