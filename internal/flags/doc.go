// Package flags is the room of feature flags and of the network settings that they control.
//
// Belongs here: flagset (flag sets, evaluated as flagd does), provider (OpenFeature providers, OFREP, and
// the sources of flag sets), setting (what a setting of a network does to a node, where it is set, what is
// in force), felix (the parameters of Calico's agent).
//
// Does not belong here: the rollout of a setting, which is a kind of change (change/rollout).
//
// Door: felix, flagset, provider, setting.
// Hands: provider.
// Tests: provider/pgtest.
package flags
