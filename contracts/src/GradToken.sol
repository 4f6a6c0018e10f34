// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// @title Test money for local chains: an ERC-20 with permit (EIP-2612) that its deployer can mint.
contract GradToken is ERC20, ERC20Permit {
    error NotMinter();

    address public immutable minter;
    uint8 private immutable _places;

    /// @param places decimals of the token
    /// @param supply minted to the deployer, in the token's smallest unit
    constructor(string memory name_, string memory symbol_, uint8 places, uint256 supply)
        ERC20(name_, symbol_)
        ERC20Permit(name_)
    {
        minter = msg.sender;
        _places = places;
        _mint(msg.sender, supply);
    }

    function decimals() public view override returns (uint8) {
        return _places;
    }

    function mint(address to, uint256 amount) external {
        if (msg.sender != minter) revert NotMinter();
        _mint(to, amount);
    }
}
