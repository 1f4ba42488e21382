// Package controller runs approved plans in the cluster. It finds Migrations whose spec asks for that, decides what to
// do about each (Decide), executes them with package run, and writes conditions and events that say how far they are.
//
// The lock on the cluster makes two controllers, or a controller and a command line, safe next to each other. The
// controller keeps nothing that it needs: after a restart it continues from the journal.
package controller
