// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IEscrow} from "../src/interfaces/IEscrow.sol";
import {IReservations} from "../src/interfaces/IReservations.sol";
import {IVouchers} from "../src/interfaces/IVouchers.sol";
import {Fixture} from "./Fixture.sol";
import {FalseToken} from "./tokens/FalseToken.sol";
import {HostileToken} from "./tokens/HostileToken.sol";
import {NoReturnToken} from "./tokens/NoReturnToken.sol";
import {vm} from "./Vm.sol";

/// @dev Each kind of token works, or is refused by name.
contract TokensTest is Fixture {
    HostileToken private hostile;

    function setUp() public override {
        super.setUp();
        hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(requester, 1e30);
        vm.prank(requester);
        hostile.approve(address(market), type(uint256).max);
    }

    function test_NoReturnValueAndSixDecimals() external {
        NoReturnToken quiet = new NoReturnToken();
        market = deploy(IERC20(address(quiet)));
        quiet.mint(requester, 500e6);
        vm.prank(requester);
        quiet.approve(address(market), type(uint256).max);
        IEscrow.OpenParams memory params = terms();
        (params.unit, params.amount) = (100, 5_000_000);
        uint256 jobId = openWith(params);
        reserve(jobId, ana, 1_000_000);
        redeem(jobId, ana, 1_000_000);
        vm.assertEq(quiet.balanceOf(ana), 100e6);
        vm.prank(requester);
        market.withdrawFree(jobId, 4_000_000);
        vm.assertEq(quiet.balanceOf(requester), 400e6);
    }

    function test_FalseIsRefused() external {
        FalseToken no = new FalseToken();
        market = deploy(IERC20(address(no)));
        vm.expectRevert(abi.encodeWithSelector(SafeERC20.SafeERC20FailedOperation.selector, address(no)));
        open();
    }

    function test_AFeeOnDepositsIsTheRequesters() external {
        hostile.setFee(1);
        uint256 jobId = open();
        vm.assertEq(market.free(jobId), DEPOSIT * 99 / 100);
        vm.assertEq(hostile.balanceOf(address(market)) / UNIT, DEPOSIT * 99 / 100);
    }

    function test_ABlacklistedWorkerBlocksNobodyAndLosesNothing() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        reserve(jobId, ben, 10);
        hostile.setBlacklisted(ana, true);
        vm.prank(requester);
        market.settlePacked(jobId, 0, bytes.concat(group(ana, 10, 1), group(ben, 10, 1)));
        market.collect(jobId, ben);
        vm.expectRevert(abi.encodeWithSelector(HostileToken.Blacklisted.selector, ana));
        market.collect(jobId, ana);
        vm.prank(ana);
        market.setPayout(stranger);
        market.collect(jobId, ana);
        vm.assertEq(hostile.balanceOf(stranger), 10 * UNIT);
    }

    function test_ReEntryOnPayOutIsRefused() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 10, 1);
        bytes[9] memory moves = [
            abi.encodeCall(market.collect, (jobId, ana)),
            abi.encodeCall(market.redeem, (jobId, ana, 10, voucher(jobId, ana, 10))),
            abi.encodeCall(market.redeemBatch, (new IVouchers.SignedVoucher[](0))),
            abi.encodeCall(market.refund, (jobId)),
            abi.encodeCall(market.withdrawFree, (jobId, 1)),
            abi.encodeCall(market.closeJob, (jobId, new IReservations.SignedRelease[](0))),
            abi.encodeCall(market.stake, (1)),
            abi.encodeCall(market.unstake, (0)),
            abi.encodeCall(market.burn, ())
        ];
        for (uint256 i; i < moves.length; ++i) {
            settle(jobId, ana, 0, 1);
            uint256 state = vm.snapshotState();
            hostile.setHook(address(market), moves[i]);
            market.collect(jobId, ana);
            _refusedReEntry();
            vm.assertEq(hostile.balanceOf(ana), 10 * UNIT);
            vm.revertToState(state);
        }
    }

    /// else one transfer would be measured as two deposits
    function test_ReEntryOnDepositIsRefused() external {
        uint256 jobId = open();
        IEscrow.OpenParams memory params = terms();
        bytes[5] memory moves = [
            abi.encodeCall(market.openJob, (params)),
            abi.encodeCall(market.openJobWithPermit, (params, 0, 27, 0, 0)),
            abi.encodeCall(market.topUp, (jobId, 5)),
            abi.encodeCall(market.topUpWithPermit, (jobId, 5, 0, 27, 0, 0)),
            abi.encodeCall(market.accuse, (jobId, ana, 1, 0))
        ];
        for (uint256 i; i < moves.length; ++i) {
            hostile.setHook(address(market), moves[i]);
            vm.prank(requester);
            market.topUp(jobId, 5);
            _refusedReEntry();
        }
        vm.assertEq(hostile.balanceOf(address(market)), uint256(DEPOSIT + 25) * UNIT);
    }

    function _refusedReEntry() private view {
        vm.assertFalse(hostile.hookSucceeded());
        bytes4 expected = ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector;
        vm.assertEq(hostile.hookError(), abi.encodePacked(expected));
    }
}
