// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract BurnTest is StakeFixture {
    address private constant NOBODY = 0x000000000000000000000000000000000000dEaD;

    function slash() private {
        join(ana, AT_RISK);
        bytes32 caseId = accuse(250);
        vm.warp(START + CONTEST_WINDOW + 1);
        market.close(caseId);
    }

    function test_WhenThereIsNothingToBurn() external {
        market.burn();
        vm.assertEq(token.balanceOf(NOBODY), 0);
    }

    function test_SendItWhereNobodyCanSpend() external {
        slash();
        vm.expectEmit();
        emit IStake.Burnt(250);
        vm.prank(stranger);
        market.burn();
        vm.assertEq(token.balanceOf(NOBODY), 250);
        vm.assertEq(market.toBurn(), 0);
        market.burn();
        vm.assertEq(token.balanceOf(NOBODY), 250);
    }

    function test_LeaveAllOtherMoney() external {
        slash();
        market.burn();
        uint256 expected = uint256(DEPOSIT) * UNIT + STAKE - 250 + uint256(BOND) * UNIT;
        vm.assertEq(token.balanceOf(address(market)), expected);
    }
}
