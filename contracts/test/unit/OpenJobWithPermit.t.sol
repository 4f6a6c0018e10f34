// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract OpenJobWithPermitTest is Fixture {
    uint256 private constant KEY = 0x4E9;
    uint256 private constant VALUE = uint256(DEPOSIT) * UNIT;

    function openPermitted(uint8 v, bytes32 r, bytes32 s) private returns (uint256) {
        vm.prank(requester);
        return market.openJobWithPermit(terms(), EXPIRY, v, r, s);
    }

    function withdrawAllowance() private {
        vm.prank(requester);
        token.approve(address(market), 0);
    }

    function test_WhenThePermitIsGood() external {
        withdrawAllowance();
        (uint8 v, bytes32 r, bytes32 s) = Signing.permit(token, KEY, address(market), VALUE, EXPIRY);
        vm.assertEq(market.free(openPermitted(v, r, s)), DEPOSIT);
        vm.assertEq(token.allowance(requester, address(market)), 0);
    }

    function test_WhenAnotherUsedThePermitFirst() external {
        withdrawAllowance();
        (uint8 v, bytes32 r, bytes32 s) = Signing.permit(token, KEY, address(market), VALUE, EXPIRY);
        vm.prank(stranger);
        token.permit(requester, address(market), VALUE, EXPIRY, v, r, s);
        vm.assertEq(market.free(openPermitted(v, r, s)), DEPOSIT);
    }

    function test_RevertWhen_ThereIsNeitherPermitNorAllowance() external {
        withdrawAllowance();
        (uint8 v, bytes32 r, bytes32 s) = Signing.permit(token, KEY, address(market), VALUE - 1, EXPIRY);
        vm.expectRevert();
        openPermitted(v, r, s);
    }

    function test_WhenTheTokenKnowsNoPermits() external {
        HostileToken plain = new HostileToken();
        market = deploy(IERC20(address(plain)));
        plain.mint(requester, VALUE);
        vm.prank(requester);
        plain.approve(address(market), VALUE);
        vm.assertEq(market.free(openPermitted(27, 0, 0)), DEPOSIT);
    }
}
