// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../src/interfaces/IEscrow.sol";
import {StakeFixture} from "./StakeFixture.sol";
import {vm} from "./Vm.sol";

/// @dev A job whose last 160 units a worker vest, and no stake in it; ana earned 400 by a voucher.
abstract contract VestFixture is StakeFixture {
    uint64 internal constant VEST = 160;
    uint32 internal constant VEST_WINDOW = 5 hours;
    uint64 internal constant EARNED = 400;

    function setUp() public virtual override {
        super.setUp();
        jobId = openWith(vesting());
        reserve(jobId, ana, 1000);
    }

    function vesting() internal view returns (IEscrow.OpenParams memory params) {
        params = terms();
        (params.decisionWindow, params.bond) = (DECISION_WINDOW, BOND);
        (params.vest, params.vestWindow, params.vestQuorum) = (VEST, VEST_WINDOW, quorum());
    }

    function accuseVested(uint64 amount) internal returns (bytes32 caseId) {
        vm.prank(requester);
        return market.accuseVested(jobId, ana, amount, EVENT);
    }

    /// @dev the two validators' ruling of a case of `amount` units
    function rule(bytes32 caseId, uint64 amount, bool guilty) internal {
        bytes[] memory signatures = rulings(caseId, uint128(amount) * UNIT, guilty, 0, 2);
        market.decide(caseId, guilty, validators, 2, signatures);
    }
}
