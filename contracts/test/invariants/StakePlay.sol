// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {GradToken} from "../../src/GradToken.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {Signing} from "../Signing.sol";
import {bound, vm} from "../Vm.sol";

/// @dev Two workers with stakes, two jobs of one requester that accuses at will. Worker 0 is honest: it contests in
/// time, and its validators acquit it. Worker 1 sleeps, and its validators sign anything. Every move may fail.
contract StakePlay {
    uint256 public constant JOBS = 2;
    uint256 public constant WORKERS = 2;
    uint128 private constant FUNDS = 10_000;
    uint48 private constant WINDOW = 1 hours;

    GradMarket public market;
    GradToken public token;
    address[] public workers;
    address[] private _validators;
    bytes32[] public cases;
    /// what each worker put in less what it took out and lost
    mapping(address worker => uint256) public kept;
    mapping(address worker => uint256) public slashed;
    mapping(address worker => uint256) public everExposed;
    mapping(uint256 jobId => mapping(address worker => uint48)) public lockedUntil;
    uint256 public earlyExits;
    uint256 public repeatedEvents;
    uint256 public burnt;
    uint256 public forfeited;
    uint256 public immutable requesterFunds;

    constructor() {
        vm.warp(1_000_000);
        token = new GradToken("Gradient", "GRAD", 18, 1e12);
        requesterFunds = 1e12;
        market = new GradMarket(IERC20(address(token)), WINDOW, keccak256("stake play"));
        token.approve(address(market), type(uint256).max);
        for (uint256 i; i < WORKERS; ++i) {
            address worker = vm.addr(0xA000 + i);
            workers.push(worker);
            token.mint(worker, FUNDS);
            vm.prank(worker);
            token.approve(address(market), type(uint256).max);
        }
        (_validators, cases) = (new address[](2), new bytes32[](0));
        (_validators[0], _validators[1]) = (vm.addr(0x7A1), vm.addr(0x7A2));
        for (uint256 i; i < JOBS; ++i) {
            _open();
        }
    }

    function stake(uint256 pick, uint128 amount) external {
        amount = uint128(bound(amount, 0, FUNDS));
        if (_as(pick, abi.encodeCall(market.stake, (amount)))) kept[_worker(pick)] += amount;
    }

    function unstake(uint256 pick, uint128 amount) external {
        amount = uint128(bound(amount, 0, FUNDS));
        if (_as(pick, abi.encodeCall(market.unstake, (amount)))) kept[_worker(pick)] -= amount;
    }

    function joinJob(uint256 jobId, uint256 pick, uint128 atRisk) external {
        jobId = bound(jobId, 1, JOBS);
        atRisk = uint128(bound(atRisk, 0, FUNDS / 2));
        if (!_as(pick, abi.encodeCall(market.joinJob, (jobId, atRisk, _quorum())))) return;
        lockedUntil[jobId][_worker(pick)] = type(uint48).max;
        everExposed[_worker(pick)] += atRisk;
    }

    function leaveJob(uint256 jobId, uint256 pick) external {
        jobId = bound(jobId, 1, JOBS);
        if (!_as(pick, abi.encodeCall(market.leaveJob, (jobId)))) return;
        lockedUntil[jobId][_worker(pick)] = uint48(block.timestamp + WINDOW);
    }

    function freeExposure(uint256 jobId, uint256 pick) external {
        jobId = bound(jobId, 1, JOBS);
        uint64 open = market.exposure(jobId, _worker(pick)).openCases;
        if (!_try(abi.encodeCall(market.freeExposure, (jobId, _worker(pick))))) return;
        if (open != 0 || block.timestamp <= lockedUntil[jobId][_worker(pick)]) ++earlyExits;
    }

    function accuse(uint256 jobId, uint256 pick, uint128 amount, uint256 what) external {
        jobId = bound(jobId, 1, JOBS);
        bytes32 eventDigest = bytes32(what % 16);
        bytes32 caseId = keccak256(abi.encode(jobId, _worker(pick), eventDigest));
        bool known = market.caseOf(caseId).stage != IStake.Stage.None;
        amount = uint128(bound(amount, 0, FUNDS));
        if (!_try(abi.encodeCall(market.accuse, (jobId, _worker(pick), amount, eventDigest)))) return;
        if (known) ++repeatedEvents;
        cases.push(caseId);
    }

    function contest(uint256 which, uint256 pick) external {
        if (cases.length != 0) _as(pick, abi.encodeCall(market.contest, (cases[which % cases.length])));
    }

    function decide(uint256 which, bool guilty, uint256 signers) external {
        if (cases.length == 0) return;
        bytes32 caseId = cases[which % cases.length];
        IStake.Case memory c = market.caseOf(caseId);
        if (c.worker == workers[0]) guilty = false;
        bytes[] memory signatures = new bytes[](1 + signers % 2);
        for (uint256 i; i < signatures.length; ++i) {
            signatures[i] = Signing.ruling(market, 0x7A1 + (signers >> i) % 3, caseId, c.amount, guilty);
        }
        _close(caseId, abi.encodeCall(market.decide, (caseId, guilty, _validators, 1 + signers % 3, signatures)));
    }

    /// the requester's own validators, on any case
    function decideForged(uint256 which) external {
        if (cases.length == 0) return;
        bytes32 caseId = cases[which % cases.length];
        address[] memory own = new address[](1);
        own[0] = vm.addr(0x4E9);
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = Signing.ruling(market, 0x4E9, caseId, market.caseOf(caseId).amount, true);
        _close(caseId, abi.encodeCall(market.decide, (caseId, true, own, 1, signatures)));
    }

    function close(uint256 which) external {
        if (cases.length == 0) return;
        bytes32 caseId = cases[which % cases.length];
        _close(caseId, abi.encodeCall(market.close, (caseId)));
    }

    function burn() external {
        uint256 amount = market.toBurn();
        if (_try(abi.encodeCall(market.burn, ()))) burnt += amount;
    }

    function wait(uint256 time) external {
        for (uint256 i; i < cases.length; ++i) {
            IStake.Case memory c = market.caseOf(cases[i]);
            if (c.worker == workers[0] && c.stage == IStake.Stage.Open) {
                _as(0, abi.encodeCall(market.contest, (cases[i])));
            }
        }
        vm.warp(block.timestamp + bound(time, 0, WINDOW + 10 minutes));
    }

    function casesCount() external view returns (uint256) {
        return cases.length;
    }

    function _close(bytes32 caseId, bytes memory move) private {
        IStake.Case memory c = market.caseOf(caseId);
        uint256 stakeBefore = market.staker(c.worker).amount;
        uint256 toBurn = market.toBurn();
        if (!_try(move)) return;
        uint256 lost = stakeBefore - market.staker(c.worker).amount;
        (slashed[c.worker], kept[c.worker]) = (slashed[c.worker] + lost, kept[c.worker] - lost);
        forfeited += market.toBurn() - toBurn - lost;
    }

    function _open() private {
        IEscrow.OpenParams memory params;
        (params.unit, params.expiry, params.claimUntil) = (1, 1_000_000 + 365 days, 1_000_000 + 366 days);
        (params.slashWindow, params.contestWindow, params.decisionWindow) =
        (uint32(WINDOW), uint32(WINDOW), uint32(WINDOW));
        (params.bond, params.voucherSigner) = (77, vm.addr(0x51613E));
        market.openJob(params);
    }

    function _quorum() private view returns (bytes32) {
        return keccak256(abi.encode(_validators, 2));
    }

    function _worker(uint256 pick) private view returns (address) {
        return workers[pick % WORKERS];
    }

    function _as(uint256 pick, bytes memory move) private returns (bool) {
        vm.prank(_worker(pick));
        return _try(move);
    }

    function _try(bytes memory move) private returns (bool succeeded) {
        (succeeded,) = address(market).call(move);
    }
}
