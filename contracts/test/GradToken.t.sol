// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradToken} from "../src/GradToken.sol";
import {vm} from "./Vm.sol";

contract GradTokenTest {
    GradToken private token = new GradToken("Gradient", "GRAD", 6, 500);

    function test_ItIsWhatItWasToldToBe() external view {
        vm.assertEq(bytes(token.name()), bytes("Gradient"));
        vm.assertEq(bytes(token.symbol()), bytes("GRAD"));
        vm.assertEq(token.decimals(), 6);
        vm.assertEq(token.balanceOf(address(this)), 500);
    }

    function test_ItsDeployerMints() external {
        token.mint(address(1), 7);
        vm.assertEq(token.totalSupply(), 507);
        vm.assertEq(token.balanceOf(address(1)), 7);
    }

    function test_RevertWhen_AnotherMints() external {
        vm.expectRevert(GradToken.NotMinter.selector);
        vm.prank(address(1));
        token.mint(address(1), 7);
    }
}
