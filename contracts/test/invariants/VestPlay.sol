// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {GradToken} from "../../src/GradToken.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {IReservations} from "../../src/interfaces/IReservations.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Signing} from "../Signing.sol";
import {bound, vm} from "../Vm.sol";

/// @dev Every move of accounts in a job that vests and in one that does not, with a requester that accuses at will and
/// validators that sign anything. The same books are kept here in wide integers, apart, by the interfaces' words; each
/// move is foretold from them alone. Worker 2 is the giant, whose sums reach the end of their 56 bits.
contract VestPlay {
    uint256 public constant JOBS = 2;
    uint256 public constant WORKERS = 3;
    uint256 public constant MOST = 2 ** 56 - 1;
    uint256 public constant UNIT = 7;
    uint256 private constant SIGNER_KEY = 0x51613E;
    uint256 private constant DEPOSIT = 2 ** 58;
    uint256 private constant BOND = 11;
    uint256 private constant VEST = 160;
    uint256 private constant VEST_WINDOW = 2 hours;
    uint256 private constant DECISION_WINDOW = 4 hours;

    struct Row {
        uint256 reserved;
        uint256 settled;
        uint256 vouchered;
        uint256 paid;
        uint256 burnt;
        uint256 creditedAt;
        uint256 accused;
    }

    struct Charge {
        bytes32 id;
        uint256 jobId;
        address worker;
        uint256 units;
        uint256 until;
        bool open;
    }

    GradMarket public market;
    GradToken public token;
    address[] public workers;
    address[] private _validators;
    address private immutable _director = msg.sender;
    uint256 public immutable expiry;
    uint256 public immutable claimUntil;
    mapping(uint256 jobId => mapping(address worker => Row)) private _rows;
    mapping(uint256 jobId => uint256) public deposited;
    mapping(uint256 jobId => uint64) private _batches;
    mapping(uint256 jobId => bool) private _refunded;
    Charge[] private _charges;
    uint256 public returned;
    uint256 public forfeited;
    uint256 public burntAway;
    /// the first move that went otherwise than foretold
    string public surprise;

    constructor() {
        vm.warp(1_000_000);
        token = new GradToken("Gradient", "GRAD", 18, type(uint128).max);
        market = new GradMarket(IERC20(address(token)), 1 hours, keccak256("vest play"));
        token.approve(address(market), type(uint256).max);
        (expiry, claimUntil) = (block.timestamp + 20 hours, block.timestamp + 30 hours);
        for (uint256 i; i < WORKERS; ++i) {
            workers.push(vm.addr(0xA000 + i));
        }
        _validators.push(vm.addr(0x7A1));
        _open(true);
        _open(false);
        for (uint256 i; i < WORKERS; ++i) {
            reserve(0, i, 300);
        }
    }

    function reserve(uint256 jobId, uint256 pick, uint256 amount) public {
        (uint256 id, address worker, uint64 sum) = _pick(jobId, pick, amount);
        Row storage row = _rows[id][worker];
        bool may = block.timestamp <= expiry && sum <= deposited[id] - reservedOf(id) && row.reserved + sum <= MOST;
        if (!_try("reserve", may, abi.encodeCall(market.reserve, (id, abi.encodePacked(worker, sum))))) return;
        uint256 before = credited(id, worker);
        row.reserved += sum;
        _stamp(id, worker, before);
    }

    /// a batch with two rows, of two workers or twice of one
    function settle(uint256 jobId, uint256 pick, uint256 amount, uint256 other, uint256 more) external {
        (uint256 id, address worker, uint64 sum) = _pick(jobId, pick, amount);
        (, address second, uint64 added) = _pick(jobId, other, more);
        bool may = block.timestamp <= claimUntil && _rows[id][second].settled + added <= MOST
            && _rows[id][worker].settled + sum + (second == worker ? added : 0) <= MOST;
        if (!_try("settle", may, _batch(id, abi.encodePacked(worker, sum, second, added)))) return;
        ++_batches[id];
        _settle(id, worker, sum);
        _settle(id, second, added);
    }

    function _batch(uint256 jobId, bytes memory data) private view returns (bytes memory) {
        return abi.encodeCall(market.settleRooted, (jobId, _batches[jobId], keccak256(data), data));
    }

    function redeem(uint256 jobId, uint256 pick, uint256 cumulative, bool many) external {
        (uint256 id, address worker, uint64 sum) = _pick(jobId, pick, cumulative);
        if (cumulative % 2 == 0 && sum <= MOST) sum = uint64(_rows[id][worker].vouchered + sum); // the next, mostly
        bytes memory signature = Signing.voucher(market, SIGNER_KEY, id, worker, sum);
        IVouchers.SignedVoucher[] memory rows = new IVouchers.SignedVoucher[](1);
        rows[0] = IVouchers.SignedVoucher(id, worker, sum, signature);
        bool may = block.timestamp <= claimUntil;
        if (many) _try("redeemBatch", true, abi.encodeCall(market.redeemBatch, (rows)));
        else _try("redeem", may, abi.encodeCall(market.redeem, (id, worker, sum, signature)));
        if (!may) return;
        Row storage row = _rows[id][worker];
        uint256 before = credited(id, worker);
        uint256 counts = sum > MOST ? MOST : sum;
        if (counts > row.vouchered) row.vouchered = counts;
        _stamp(id, worker, before);
        row.paid += due(id, worker);
    }

    function collect(uint256 jobId, uint256 pick) external {
        (uint256 id, address worker,) = _pick(jobId, pick, 0);
        _try("collect", true, abi.encodeCall(market.collect, (id, worker)));
        _rows[id][worker].paid += due(id, worker);
    }

    function release(uint256 jobId, uint256 pick, uint256 to) external {
        (uint256 id, address worker, uint64 kept) = _pick(jobId, pick, to);
        vm.prank(worker);
        if (!_try("release", block.timestamp <= claimUntil, abi.encodeCall(market.release, (id, kept)))) return;
        Row storage row = _rows[id][worker];
        uint256 least = credited(id, worker) > kept ? credited(id, worker) : kept;
        if (least < row.reserved) row.reserved = least;
    }

    function withdrawFree(uint256 jobId, uint64 amount) external {
        uint256 id = _pickJob(jobId);
        amount = uint64(bound(amount, 0, DEPOSIT / 8));
        bool may = amount <= deposited[id] - boundOf(id);
        if (_try("withdrawFree", may, abi.encodeCall(market.withdrawFree, (id, amount)))) _giveBack(id, amount);
    }

    function refund(uint256 jobId) external {
        uint256 id = _pickJob(jobId);
        if (!_try("refund", block.timestamp > claimUntil, abi.encodeCall(market.refund, (id)))) return;
        _refunded[id] = true;
        _giveBack(id, deposited[id] - boundOf(id));
    }

    function accuse(uint256 jobId, uint256 pick, uint64 units, uint256 what) external {
        (uint256 id, address worker,) = _pick(jobId, pick, 0);
        units = uint64(bound(units, 0, locked(id, worker) - _rows[id][worker].accused + 1));
        bytes32 charge = keccak256(abi.encode(id, worker, ~bytes32(what % 16)));
        Row storage row = _rows[id][worker];
        bool may = id == 1 && units != 0 && block.timestamp <= row.creditedAt + VEST_WINDOW
            && units <= locked(id, worker) - row.accused && market.caseOf(charge).stage == IStake.Stage.None;
        if (!_try("accuse", may, abi.encodeCall(market.accuseVested, (id, worker, units, bytes32(what % 16))))) return;
        row.accused += units;
        _charges.push(Charge(charge, id, worker, units, block.timestamp + DECISION_WINDOW, true));
    }

    function decide(uint256 which, bool guilty) external {
        if (_charges.length == 0) return;
        Charge storage c = _charges[which % _charges.length];
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = Signing.ruling(market, 0x7A1, c.id, uint128(c.units * UNIT), guilty);
        bool may = c.open && block.timestamp <= c.until;
        bytes memory move = abi.encodeCall(market.decide, (c.id, guilty, _validators, 1, signatures));
        if (_try("decide", may, move)) _end(c, guilty);
    }

    function close(uint256 which) external {
        if (_charges.length == 0) return;
        Charge storage c = _charges[which % _charges.length];
        if (_try("close", c.open && block.timestamp > c.until, abi.encodeCall(market.close, (c.id)))) _end(c, false);
    }

    function burn() external {
        burntAway += market.toBurn();
        _try("burn", true, abi.encodeCall(market.burn, ()));
    }

    function wait(uint256 time) external {
        vm.warp(block.timestamp + bound(time, 0, 90 minutes));
    }

    /// time has passed, all is over, and everybody takes what is its own
    function settleUp() external {
        if (msg.sender != _director) return; // no move of the play
        vm.warp(claimUntil + VEST_WINDOW + DECISION_WINDOW + 1);
        for (uint256 i; i < _charges.length; ++i) {
            this.close(i);
        }
        for (uint256 jobId = 1; jobId <= JOBS; ++jobId) {
            this.refund(jobId - 1);
            for (uint256 i; i < WORKERS; ++i) {
                this.collect(jobId - 1, i);
            }
        }
        market.unstake(market.staker(address(this)).amount);
        this.burn();
    }

    function rowOf(uint256 jobId, address worker) external view returns (Row memory) {
        return _rows[jobId][worker];
    }

    function openBonds() external view returns (uint256 sum) {
        for (uint256 i; i < _charges.length; ++i) {
            if (_charges[i].open) sum += BOND * UNIT;
        }
    }

    function credited(uint256 jobId, address worker) public view returns (uint256) {
        Row storage row = _rows[jobId][worker];
        uint256 earned = row.settled > row.vouchered ? row.settled : row.vouchered;
        return earned < row.reserved ? earned : row.reserved;
    }

    function locked(uint256 jobId, address worker) public view returns (uint256) {
        Row storage row = _rows[jobId][worker];
        if (jobId != 1) return 0;
        if (block.timestamp > row.creditedAt + VEST_WINDOW) return row.accused;
        uint256 unpaid = credited(jobId, worker) - row.paid - row.burnt;
        return unpaid < VEST ? unpaid : VEST;
    }

    function due(uint256 jobId, address worker) public view returns (uint256) {
        Row storage row = _rows[jobId][worker];
        return credited(jobId, worker) - row.paid - row.burnt - locked(jobId, worker);
    }

    function reservedOf(uint256 jobId) public view returns (uint256 sum) {
        for (uint256 i; i < WORKERS; ++i) {
            sum += _rows[jobId][workers[i]].reserved;
        }
    }

    function creditedOf(uint256 jobId) public view returns (uint256 sum) {
        for (uint256 i; i < WORKERS; ++i) {
            sum += credited(jobId, workers[i]);
        }
    }

    /// what the requester cannot take: reservations, and after a refund what was credited
    function boundOf(uint256 jobId) public view returns (uint256) {
        return _refunded[jobId] ? creditedOf(jobId) : reservedOf(jobId);
    }

    function _settle(uint256 jobId, address worker, uint256 sum) private {
        uint256 before = credited(jobId, worker);
        _rows[jobId][worker].settled += sum;
        _stamp(jobId, worker, before);
    }

    function _stamp(uint256 jobId, address worker, uint256 before) private {
        if (credited(jobId, worker) > before) _rows[jobId][worker].creditedAt = block.timestamp;
    }

    function _giveBack(uint256 jobId, uint256 amount) private {
        deposited[jobId] -= amount;
        returned += amount;
    }

    function _end(Charge storage c, bool guilty) private {
        c.open = false;
        Row storage row = _rows[c.jobId][c.worker];
        row.accused -= c.units;
        if (guilty) row.burnt += c.units;
        else forfeited += BOND * UNIT;
    }

    /// small sums; the giant's are up to twice what its 56 bits hold, and often at their edge
    function _pick(uint256 jobId, uint256 pick, uint256 amount) private view returns (uint256, address, uint64) {
        uint256 who = bound(pick, 0, WORKERS - 1);
        uint256 sum = bound(amount, 0, 300);
        if (who == 2 && amount % 4 == 1) sum = bound(amount, 0, 2 * MOST);
        if (who == 2 && amount % 4 == 2) sum = bound(amount, MOST - 2, MOST + 2);
        return (_pickJob(jobId), workers[who], uint64(sum));
    }

    /// mostly the job that vests
    function _pickJob(uint256 seed) private pure returns (uint256) {
        return seed % 4 == 1 ? 2 : 1;
    }

    function _open(bool vests) private {
        IEscrow.OpenParams memory params;
        (params.amount, params.unit, params.voucherSigner) = (uint64(DEPOSIT), uint64(UNIT), vm.addr(SIGNER_KEY));
        (params.expiry, params.claimUntil) = (uint48(expiry), uint48(claimUntil));
        if (vests) {
            (params.decisionWindow, params.bond) = (uint32(DECISION_WINDOW), uint64(BOND));
            (params.vest, params.vestWindow) = (uint64(VEST), uint32(VEST_WINDOW));
            params.vestQuorum = keccak256(abi.encode(_validators, 1));
        }
        deposited[market.openJob(params)] = DEPOSIT;
    }

    function _try(string memory name, bool may, bytes memory move) private returns (bool succeeded) {
        (succeeded,) = address(market).call(move);
        if (succeeded != may && bytes(surprise).length == 0) surprise = name;
    }
}
