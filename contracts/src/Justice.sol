// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Stake} from "./Stake.sol";
import {AccountWord} from "./libraries/AccountWord.sol";

/// @title Accusations, rulings and slashes.
abstract contract Justice is Stake {
    using SafeERC20 for IERC20;

    bytes32 private constant RULING_TYPEHASH =
        keccak256("Ruling(bytes32 instance,bytes32 accusation,uint128 amount,bool guilty)");
    bytes32 private constant WATCH_TYPEHASH = keccak256("Watch(bytes32 instance,address worker,address watcher)");
    address private constant NOBODY = 0x000000000000000000000000000000000000dEaD;

    uint256 public override toBurn;
    mapping(bytes32 caseId => Case) private _cases;

    function accuse(uint256 jobId, address worker, uint128 amount, bytes32 eventDigest)
        external
        override
        nonReentrant
        returns (bytes32 caseId)
    {
        Job storage j = _jobOfRequester(jobId);
        uint128 bond = _pullBond(j);
        _addAccusation(_joined(jobId, worker), amount);
        uint48 until = uint48(block.timestamp + j.contestWindow);
        return _openCase(Case(jobId, worker, until, Stage.Open, amount, bond), eventDigest, eventDigest);
    }

    function accuseVested(uint256 jobId, address worker, uint64 amount, bytes32 eventDigest)
        external
        override
        nonReentrant
        returns (bytes32 caseId)
    {
        Job storage j = _jobOfRequester(jobId);
        uint128 bond = _pullBond(j);
        _addVestAccusation(j, jobId, worker, amount);
        uint48 until = uint48(block.timestamp + j.decisionWindow);
        uint128 sum = uint128(amount) * j.unit;
        return _openCase(Case(jobId, worker, until, Stage.Vested, sum, bond), eventDigest, ~eventDigest);
    }

    function contest(bytes32 caseId) external override {
        Case storage c = _caseAt(caseId, Stage.Open);
        if (msg.sender != c.worker) revert NotAccused();
        _contest(caseId, c);
    }

    function contestFor(bytes32 caseId, bytes calldata mandate) external override {
        Case storage c = _caseAt(caseId, Stage.Open);
        bytes32 watch = keccak256(abi.encode(WATCH_TYPEHASH, INSTANCE, c.worker, msg.sender));
        if (_signerOf(watch, mandate) != c.worker) revert BadSignature();
        _contest(caseId, c);
    }

    function decide(
        bytes32 caseId,
        bool guilty,
        address[] calldata validators,
        uint256 threshold,
        bytes[] calldata signatures
    ) external override {
        Case storage c = _cases[caseId];
        bool vested = c.stage == Stage.Vested;
        if (!vested && c.stage != Stage.Contested) revert WrongStage(c.stage);
        _until(c.until);
        bytes32 quorum = vested ? _jobs[c.jobId].vestQuorum : _exposures[c.jobId][c.worker].quorum;
        if (quorum != keccak256(abi.encode(validators, threshold))) revert NoQuorum();
        if (threshold == 0 || signatures.length < threshold) revert NoQuorum();
        _needEach(_typedDigest(_rulingHash(caseId, c.amount, guilty)), validators, signatures);
        if (guilty) _slash(caseId, c);
        else _acquit(caseId, c);
    }

    function close(bytes32 caseId) external override {
        Case storage c = _cases[caseId];
        Stage stage = c.stage;
        if (stage == Stage.None || stage == Stage.Closed) revert WrongStage(stage);
        _after(c.until);
        if (stage == Stage.Open) _slash(caseId, c);
        else if (stage == Stage.Vested) _acquit(caseId, c);
        else _dismiss(caseId, c);
    }

    function burn() external override nonReentrant {
        uint256 amount = toBurn;
        toBurn = 0;
        emit Burnt(amount);
        token.safeTransfer(NOBODY, amount);
    }

    function caseOf(bytes32 caseId) external view override returns (Case memory) {
        return _cases[caseId];
    }

    function _pullBond(Job storage j) private returns (uint128 bond) {
        bond = uint128(j.bond) * j.unit;
        if (_pull(bond) != bond) revert NothingArrived();
    }

    /// @param named by what the case goes besides job and worker
    function _openCase(Case memory c, bytes32 eventDigest, bytes32 named) private returns (bytes32 caseId) {
        caseId = keccak256(abi.encode(c.jobId, c.worker, named));
        if (_cases[caseId].stage != Stage.None) revert BadAccusation();
        _cases[caseId] = c;
        emit Accused(caseId, c.jobId, c.worker, c.amount, eventDigest, c.until);
    }

    function _addVestAccusation(Job storage j, uint256 jobId, address worker, uint64 amount) private {
        if (amount == 0) revert BadAccusation();
        uint256 row = AccountWord.read(_accounts[jobId][worker]);
        _until(AccountWord.creditedAt(row) + j.vestWindow);
        uint64 accused = _vestAccused[jobId][worker];
        unchecked {
            // what is accused stays locked
            uint64 available = _locked(j, jobId, worker, row) - accused;
            if (amount > available) revert Overdrawn(available);
            _vestAccused[jobId][worker] = accused + amount;
        }
    }

    function _addAccusation(Exposure storage e, uint128 amount) private {
        if (amount == 0) revert BadAccusation();
        if (e.lockedUntil != 0) _until(e.lockedUntil);
        unchecked {
            uint128 available = e.atRisk - e.accused; // accused <= atRisk
            if (amount > available) revert Overdrawn(available);
            (e.accused, e.openCases) = (e.accused + amount, e.openCases + 1);
        }
    }

    function _contest(bytes32 caseId, Case storage c) private {
        _until(c.until);
        (c.stage, c.until) = (Stage.Contested, uint48(block.timestamp + _jobs[c.jobId].decisionWindow));
        emit Contested(caseId, c.until);
    }

    function _slash(bytes32 caseId, Case storage c) private {
        uint128 amount = c.amount;
        uint64 units = _endCase(c);
        if (units != 0) {
            unchecked {
                _accounts[c.jobId][c.worker].withdrawn += uint56(units); // they were locked
            }
            emit VestBurnt(c.jobId, c.worker, units);
        } else {
            unchecked {
                // what is accused is at risk, and what is at risk is staked
                _exposures[c.jobId][c.worker].atRisk -= amount;
                Staker storage s = _stakers[c.worker];
                (s.amount, s.exposed) = (s.amount - amount, s.exposed - amount);
            }
        }
        toBurn += amount;
        _returnBond(c);
        emit Slashed(caseId, c.jobId, c.worker, amount);
    }

    function _acquit(bytes32 caseId, Case storage c) private {
        _endCase(c);
        toBurn += c.bond;
        emit Acquitted(caseId, c.bond);
    }

    function _dismiss(bytes32 caseId, Case storage c) private {
        _endCase(c);
        _returnBond(c);
        emit Dismissed(caseId);
    }

    /// @return vested the units of locked pay that were accused; 0 if it was a stake
    function _endCase(Case storage c) private returns (uint64 vested) {
        bool isStake = c.stage != Stage.Vested;
        c.stage = Stage.Closed;
        if (!isStake) {
            unchecked {
                vested = uint64(c.amount / _jobs[c.jobId].unit);
                _vestAccused[c.jobId][c.worker] -= vested;
            }
            return vested;
        }
        Exposure storage e = _exposures[c.jobId][c.worker];
        unchecked {
            (e.accused, e.openCases) = (e.accused - c.amount, e.openCases - 1);
        }
    }

    /// @dev To the requester's stake rather than its wallet: no payee can block the end of a case.
    function _returnBond(Case storage c) private {
        _stakers[_jobs[c.jobId].requester].amount += c.bond;
    }

    /// @dev Each signature is of a validator further on in the list than the one before, so nobody counts twice.
    function _needEach(bytes32 ruling, address[] calldata validators, bytes[] calldata signatures) private pure {
        uint256 next;
        for (uint256 i; i < signatures.length; ++i) {
            (address signer,,) = ECDSA.tryRecoverCalldata(ruling, signatures[i]);
            while (next < validators.length && validators[next] != signer) ++next;
            if (signer == address(0) || next == validators.length) revert NoQuorum();
            ++next;
        }
    }

    function _caseAt(bytes32 caseId, Stage stage) private view returns (Case storage c) {
        c = _cases[caseId];
        if (c.stage != stage) revert WrongStage(c.stage);
    }

    function _rulingHash(bytes32 caseId, uint128 amount, bool guilty) private view returns (bytes32) {
        return keccak256(abi.encode(RULING_TYPEHASH, INSTANCE, caseId, amount, guilty));
    }
}
