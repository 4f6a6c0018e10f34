// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @dev A token that can be told to misbehave.
contract HostileToken is ERC20("Hostile", "HST") {
    error Blacklisted(address who);

    uint8 private _decimals = 18;
    /// parts in a hundred that each transfer loses
    uint256 public fee;
    /// parts in a hundred that each transfer mints on top
    uint256 public bonus;
    mapping(address => bool) public blacklisted;
    address private _hookTarget;
    bytes private _hookData;
    bytes public hookError;
    bool public hookSucceeded;

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function setDecimals(uint8 places) external {
        _decimals = places;
    }

    function setFee(uint256 percent) external {
        fee = percent;
    }

    function setBonus(uint256 percent) external {
        bonus = percent;
    }

    function setBlacklisted(address who, bool listed) external {
        blacklisted[who] = listed;
    }

    /// @dev calls `target` with `data` inside the next transfer
    function setHook(address target, bytes calldata data) external {
        (_hookTarget, _hookData) = (target, data);
        (hookSucceeded, hookError) = (false, "");
    }

    function decimals() public view override returns (uint8) {
        return _decimals;
    }

    function _update(address from, address to, uint256 value) internal override {
        if (blacklisted[from]) revert Blacklisted(from);
        if (blacklisted[to]) revert Blacklisted(to);
        super._update(from, to, value);
        if (from == address(0)) return;
        if (fee != 0) super._update(to, address(0), value * fee / 100);
        if (bonus != 0) super._update(address(0), to, value * bonus / 100);
        _callHook();
    }

    function _callHook() private {
        address target = _hookTarget;
        if (target == address(0)) return;
        _hookTarget = address(0);
        (hookSucceeded, hookError) = target.call(_hookData);
    }
}
