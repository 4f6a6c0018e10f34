// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {vm} from "../Vm.sol";
import {StakePlay} from "./StakePlay.sol";

contract StakeInvariants {
    StakePlay private play;
    GradMarket private market;

    function setUp() external {
        play = new StakePlay();
        market = play.market();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(play);
    }

    function invariant_all() external view {
        for (uint256 i; i < play.WORKERS(); ++i) {
            _checkWorker(play.workers(i));
        }
        invariant_StakesAndBondsAreHeld();
        invariant_AccuserNeverGains();
        invariant_WhatIsLostIsBurnt();
        invariant_HonestWorkerIsNeverSlashed();
        invariant_NobodyLeavesBeforeTheSlash();
        invariant_OneEventOneCase();
    }

    function _checkWorker(address worker) private view {
        IStake.Staker memory s = market.staker(worker);
        uint256 atRisk;
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            IStake.Exposure memory e = market.exposure(jobId, worker);
            atRisk += e.atRisk;
            invariant_AccusedWithinAtRisk(e);
            invariant_AccusedIsTheSumOfOpenCases(jobId, worker, e);
        }
        invariant_ExposedIsTheSum(s, atRisk);
        invariant_ExposedWithinStake(s);
        invariant_StakeIsWhatWasKept(worker, s);
        invariant_SlashedWithinExposed(worker);
    }

    function invariant_AccusedWithinAtRisk(IStake.Exposure memory e) internal pure {
        vm.assertLe(e.accused, e.atRisk, "accused <= at risk");
    }

    function invariant_AccusedIsTheSumOfOpenCases(uint256 jobId, address worker, IStake.Exposure memory e)
        internal
        view
    {
        uint256 sum;
        uint256 open;
        for (uint256 i; i < play.casesCount(); ++i) {
            IStake.Case memory c = market.caseOf(play.cases(i));
            if (c.jobId != jobId || c.worker != worker || c.stage == IStake.Stage.Closed) continue;
            sum += c.amount;
            ++open;
        }
        vm.assertEq(e.accused, sum, "accused = sum of open cases");
        vm.assertEq(e.openCases, open, "open cases are counted");
    }

    function invariant_ExposedIsTheSum(IStake.Staker memory s, uint256 atRisk) internal pure {
        vm.assertEq(s.exposed, atRisk, "exposed = sum over jobs");
    }

    function invariant_ExposedWithinStake(IStake.Staker memory s) internal pure {
        vm.assertLe(s.exposed, s.amount, "exposed <= stake");
    }

    function invariant_StakeIsWhatWasKept(address worker, IStake.Staker memory s) internal view {
        vm.assertEq(s.amount, play.kept(worker), "stake = in - out - slashed");
    }

    function invariant_SlashedWithinExposed(address worker) internal view {
        vm.assertLe(play.slashed(worker), play.everExposed(worker), "slashed <= exposed");
    }

    function invariant_StakesAndBondsAreHeld() internal view {
        uint256 owed = market.toBurn() + market.staker(address(play)).amount;
        for (uint256 i; i < play.WORKERS(); ++i) {
            owed += market.staker(play.workers(i)).amount;
        }
        vm.assertEq(play.token().balanceOf(address(market)), owed + _openBonds(), "held = stakes + bonds + to burn");
    }

    /// what the requester has, here and in its wallet, only falls
    function invariant_AccuserNeverGains() internal view {
        uint256 has = play.token().balanceOf(address(play)) + market.staker(address(play)).amount + _openBonds();
        vm.assertEq(has + play.forfeited(), play.requesterFunds(), "requester = funds - forfeited bonds");
    }

    function invariant_WhatIsLostIsBurnt() internal view {
        uint256 lost = play.forfeited();
        for (uint256 i; i < play.WORKERS(); ++i) {
            lost += play.slashed(play.workers(i));
        }
        vm.assertEq(market.toBurn() + play.burnt(), lost, "burnt = slashed + forfeited");
        vm.assertEq(play.token().balanceOf(0x000000000000000000000000000000000000dEaD), play.burnt(), "burnt is gone");
    }

    function invariant_HonestWorkerIsNeverSlashed() internal view {
        vm.assertEq(play.slashed(play.workers(0)), 0, "an honest worker was slashed");
    }

    function invariant_NobodyLeavesBeforeTheSlash() internal view {
        vm.assertEq(play.earlyExits(), 0, "an exposure was freed early");
    }

    function invariant_OneEventOneCase() internal view {
        vm.assertEq(play.repeatedEvents(), 0, "an event counted twice");
    }

    function _openBonds() private view returns (uint256 sum) {
        for (uint256 i; i < play.casesCount(); ++i) {
            IStake.Case memory c = market.caseOf(play.cases(i));
            if (c.stage != IStake.Stage.Closed) sum += c.bond;
        }
    }
}
