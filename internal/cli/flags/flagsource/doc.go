// Package flagsource opens the places that flags are read from, as --source and --flags name them.
package flagsource
