// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract ConstructorTest is Fixture {
    function test_KeepItsTerms() external view {
        vm.assertEq(address(market.token()), address(token));
        vm.assertEq(market.minWindow(), MIN_WINDOW);
        vm.assertEq(market.jobCount(), 0);
    }

    function test_TellTwoHistoriesApart() external {
        GradMarket sameSecond = new GradMarket(IERC20(address(token)), MIN_WINDOW, keccak256("another salt"));
        vm.warp(START + 1);
        GradMarket nextSecond = deploy(IERC20(address(token)));
        vm.assertTrue(market.INSTANCE() != sameSecond.INSTANCE());
        vm.assertTrue(market.INSTANCE() != nextSecond.INSTANCE());
        vm.roll(block.number + 7);
        vm.warp(START);
        vm.assertTrue(market.INSTANCE() != deploy(IERC20(address(token))).INSTANCE());
    }
}
