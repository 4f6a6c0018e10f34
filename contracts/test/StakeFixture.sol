// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../src/interfaces/IEscrow.sol";
import {Fixture} from "./Fixture.sol";
import {Signing} from "./Signing.sol";
import {vm} from "./Vm.sol";

/// @dev A job that slashes, and a worker with a stake and two of three validators to decide about it.
abstract contract StakeFixture is Fixture {
    uint32 internal constant SLASH_WINDOW = 2 days;
    uint32 internal constant CONTEST_WINDOW = 3 days;
    uint32 internal constant DECISION_WINDOW = 4 days;
    uint64 internal constant BOND = 50;
    uint128 internal constant STAKE = 1000;
    uint128 internal constant AT_RISK = 600;
    bytes32 internal constant EVENT = keccak256("what ana did");

    uint256[] internal validatorKeys;
    address[] internal validators;
    uint256 internal jobId;

    function setUp() public virtual override {
        super.setUp();
        for (uint256 i; i < 3; ++i) {
            validatorKeys.push(0x7A1 + i);
            validators.push(vm.addr(0x7A1 + i));
        }
        jobId = openWith(slashing());
        stake(ana, STAKE);
    }

    function slashing() internal view returns (IEscrow.OpenParams memory params) {
        params = terms();
        (params.slashWindow, params.contestWindow) = (SLASH_WINDOW, CONTEST_WINDOW);
        (params.decisionWindow, params.bond) = (DECISION_WINDOW, BOND);
    }

    function quorum() internal view returns (bytes32) {
        return keccak256(abi.encode(validators, 2));
    }

    function stake(address worker, uint128 amount) internal {
        token.mint(worker, amount);
        vm.startPrank(worker);
        token.approve(address(market), amount);
        market.stake(amount);
        vm.stopPrank();
    }

    function join(address worker, uint128 atRisk) internal {
        vm.prank(worker);
        market.joinJob(jobId, atRisk, quorum());
    }

    function leaveAs(address worker) internal {
        vm.prank(worker);
        market.leaveJob(jobId);
    }

    function accuse(uint128 amount) internal returns (bytes32 caseId) {
        vm.prank(requester);
        return market.accuse(jobId, ana, amount, EVENT);
    }

    function contest(bytes32 caseId) internal {
        vm.prank(ana);
        market.contest(caseId);
    }

    /// @dev signatures of the validators `first` and `second`, in that order
    function rulings(bytes32 caseId, uint128 amount, bool guilty, uint256 first, uint256 second)
        internal
        view
        returns (bytes[] memory signatures)
    {
        signatures = new bytes[](2);
        signatures[0] = Signing.ruling(market, validatorKeys[first], caseId, amount, guilty);
        signatures[1] = Signing.ruling(market, validatorKeys[second], caseId, amount, guilty);
    }
}
