// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {Fixture} from "../Fixture.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract StakeTest is Fixture {
    HostileToken private hostile;

    function setUp() public override {
        super.setUp();
        hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(ana, 1000);
        vm.prank(ana);
        hostile.approve(address(market), 1000);
    }

    function test_RevertWhen_NothingArrives() external {
        vm.expectRevert(ILedger.NothingArrived.selector);
        vm.prank(ana);
        market.stake(0);
    }

    function test_WhenTheTokenTakesAFee() external {
        hostile.setFee(10);
        vm.prank(ana);
        market.stake(1000);
        vm.assertEq(market.staker(ana).amount, 900);
    }

    function test_WhenTokensArrive() external {
        vm.startPrank(ana);
        market.stake(300);
        vm.expectEmit();
        emit IStake.Staked(ana, 200);
        market.stake(200);
        vm.stopPrank();
        vm.assertEq(market.staker(ana).amount, 500);
        vm.assertEq(market.staker(ana).exposed, 0);
        vm.assertEq(hostile.balanceOf(address(market)), 500);
    }
}
