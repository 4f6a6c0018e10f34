// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract TopUpWithPermitTest is Fixture {
    uint256 private constant KEY = 0x574A;

    function topUp(uint256 jobId) private {
        (uint8 v, bytes32 r, bytes32 s) = Signing.permit(token, KEY, address(market), 7 * UNIT, CLAIM_UNTIL);
        vm.prank(stranger);
        market.topUpWithPermit(jobId, 7, CLAIM_UNTIL, v, r, s);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        this.topUpExternally(1);
    }

    function test_RevertWhen_TheJobHasExpired() external {
        uint256 jobId = open();
        vm.warp(EXPIRY + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, EXPIRY));
        this.topUpExternally(jobId);
    }

    function test_WhenThePermitIsGood() external {
        uint256 jobId = open();
        token.mint(stranger, 7 * UNIT);
        topUp(jobId);
        vm.assertEq(market.free(jobId), DEPOSIT + 7);
        vm.assertEq(balance(stranger), 0);
    }

    /// @dev so that the calls that prepare the permit are not the ones expected to revert
    function topUpExternally(uint256 jobId) external {
        topUp(jobId);
    }
}
