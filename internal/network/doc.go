// Package network is the room of pod networks: it has the knowledge about each. All its packages are pure: they take a
// snapshot or a manifest and return data.
//
// Belongs here: cni (the contract of a driver), one package for each network, such as weave, drivers (the
// list of all), cnitest (the acceptance suite that each driver runs), bgp (Calico's BGP sessions and routes)
// and bgp/draw, policy (verdicts on connections), sample (connections that show them), joint (two networks at once).
// A new network is a new package here and one line in drivers; CONTRIBUTING.md says what it needs besides.
//
// Does not belong here: settings of networks (flags/setting), checks (preflight), strategies (change).
//
// Door: bgp, bgp/draw, calico, cni, drivers, joint, policy, sample.
// Tests: cnitest.
package network
