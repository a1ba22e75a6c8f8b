// Package wasmhost runs plugins: probe handlers that are WebAssembly modules. A plugin is a single
// file, written in any language, that implements the contract in package abi.
//
// Load checks a module and compiles it in the background; Plugin.New makes a handler for one set of
// settings. All handlers of a plugin share its instances. An attempt borrows an instance, runs it
// and returns it. When all instances are busy, attempts wait for at most half of their timeout: an
// attempt that got its instance too late would blame the target. Attempts whose target responded
// last time are served first, and otherwise in order of arrival
// (TestInstancesAreGrantedInTheOrderOfArrival, TestFastCallersGetInstancesFirst,
// TestACallerThatStopsWaitingIsSkipped).
//
// The sections below are promises to operators. Each promise names the tests that verify it.
//
// # Pristine state
//
// The first instance of a plugin initialises itself: its data, its start function, and _initialize.
// Its memory and globals are then saved as the image of the plugin. Each attempt, and each check of
// settings, starts from this image, regardless of earlier calls:
//
//   - The memory of an attempt contains no data from other targets or probes: neither what they
//     sent nor their settings (TestASecretOfOneTargetIsInNoLaterMemory).
//   - A plugin retains only the state that it reports (TestStateIsTheOnlyMemoryBetweenAttempts).
//     The data that its check of settings prepares (abi.OutputPrepared) is passed to attempts with
//     the same settings only (TestAttemptsGetWhatWasPreparedForTheirSettings); it counts as memory of
//     the plugin (TestWhatIsPreparedIsBounded).
//   - An attempt that was stopped, trapped or exited does not affect later attempts
//     (TestAnInstanceIsGoodAfterItWasKilled).
//   - Memory added by memory.grow in an attempt is released after it (TestGrownMemoryIsGivenBack).
//   - Concurrent attempts share no memory (TestConcurrentInstancesShareNothing).
//   - The image contains no connections and no target data: during its initialisation a module has
//     neither a target nor settings, and cannot dial (TestAnInitialisationSeesNoTarget). Random
//     numbers from the host differ between attempts (TestRandomNumbersDifferBetweenAttempts).
//
// The image cannot contain mutable tables, references created by code, passive data segments, or mutable globals
// that hold references or vectors: a module with any of these is rejected
// (TestAModuleWhoseStateCannotBeCopiedIsRejected). Other modules are initialised once, by one instance at a time
// (TestAModuleIsInitialisedOnce).
//
// # What a plugin can do
//
//   - By default a plugin can compute and connect to the probe's own target: to its address, on the
//     ports that the operator configured (TestOnlyTheTargetsPortsAreGrantedByDefault,
//     TestADefaultPortIsNotGranted).
//   - Grant allows more. Each address is checked right before it is dialled. Metadata services,
//     link-local and multicast addresses need an entry of their own (TestAddressesAreGranted,
//     TestATargetsNameNeverGrantsMetadata).
//   - A plugin can look up granted host names only (TestNamesAreLookedUpOnlyWhenGranted,
//     TestTheHostResolvesNamesForAPlugin).
//   - It sees granted environment variables only (TestAPluginSeesGrantedVariablesOnly).
//   - It sees no files (TestAPluginSeesNoFiles), and no connections of other attempts
//     (TestUnknownDescriptorsAreRejected).
//   - Limits bound its memory, time, traffic, log and host calls
//     (TestHostileModulesEndWithTheirReason, TestFuelIsLimited, TestTheRecordsOfALogAreBounded).
//   - Invalid arguments of a plugin cannot crash the host (TestInvalidArgumentsAreHandled).
//   - An attempt that is cancelled during a host call leaves no resources behind
//     (TestAnAttemptIsCancelledAtEachHostCall, TestACancelledAttemptIsUnknown).
//   - Its output is sanitized before it is shown (TestOutputOfAPluginIsCleaned).
//
// The host dials, makes TLS handshakes and resolves names on a plugin's behalf.
//
// A plugin can hold connections between attempts. When a held connection is closed, its probe is
// attempted again at once (Handler.ProbeWaking,
// TestTheEndOfAHeldConnectionChangesTheVerdictBeforeTheNextPeriod). One goroutine watches all of a
// plugin's held connections; Limits.Held bounds their number (TestHeldConnectionsAreBounded).
//
// # Memory
//
//   - The instances of all plugins together use no more memory than SetTotalMemory allows, except for one
//     instance and the image of each plugin. The sum includes stacks, connections, and the runtime's memory for
//     tables, globals, segments and references (TestTheSumIsNeverExceeded, TestGuestsGrowWithinTheBudget,
//     TestWhatTheRuntimeTakesForAnInstanceIsCounted, TestTheStackOfEachFunctionIsCounted,
//     TestConnectionsAreCounted).
//   - When more than half of the total is used, a waiting call is charged only for the memory that it
//     has changed (TestACallThatWaitsIsCountedByWhatItHasChanged,
//     TestMoreCallsWaitThanTheirMemoriesHaveRoom; Linux). When it computes again, it may exceed the
//     total by the rest of its memory; the number of slots limits how many calls compute at once.
//   - A plugin can use its share of the memory even if other plugins had filled it
//     (TestAPluginLeavesTheSharesOfOthers, TestIdleInstancesMakeRoomForAnotherPlugin). It does not
//     block other plugins meanwhile (TestNoCallClosesInstancesWithASlot).
//   - Names in a module or a certificate take little memory and time, however long they are
//     (TestLongNamesTakeNoMemoryWhenACallTraps, TestAHugeNameOfACertificateTakesLittleMemory).
//   - Unbounded recursion is stopped when its stack exceeds 8 MiB. Until the host next checks the
//     stack it may be larger, in as many calls as compute at the same time (TestTheStackIsBounded).
//
// # Errors
//
// The blame for a result follows from how the call of sonde_run ended. The first row that applies decides
// (TestTheEndOfACallSaysWhoIsToBlame). The outcome of a fault is unknown unless Config.OnTrap is failure; each fault
// counts towards the suspension of the probe and of the plugin:
//
//	returned success or warning                            | as returned        |
//	returned a number that is not an outcome               | unknown            | plugin.outcome
//	returned, after the attempt was cancelled              | unknown            | engine.stopped
//	returned, after a destination was denied               | unknown            | plugin.grant
//	returned, after the engine refused it memory           | unknown            | engine.resources
//	returned, after it reached a limit                     | unknown            | plugin.limit
//	returned late, while others had the processors         | unknown            | plugin.busy
//	returned late, after it computed for most of the time  | unknown            | plugin.timeout
//	returned, after this machine failed a call of the host | unknown            | of that call
//	returned a failure of a network inside the module      | unknown            | plugin.network
//	returned unknown or failure                            | as returned        | or that of the call of the host that failed last
//	stopped, after the attempt was cancelled               | unknown            | engine.stopped
//	stopped, while others had the processors               | unknown            | plugin.busy
//	stopped, while this process was stalled                | unknown            | plugin.busy
//	stopped, after it computed for most of the time        | fault              | plugin.timeout
//	stopped, after it waited for most of the time          | failure, and fault | plugin.timeout
//	trapped, after the engine refused it memory            | unknown            | engine.resources
//	trapped at a limit                                     | fault              | plugin.limit
//	trapped at its memory limit                            | fault              | plugin.memory
//	overflowed its stack                                   | fault              | plugin.stack
//	exited                                                 | fault              | plugin.exit
//	trapped                                                | fault              | plugin.trap
//
// Further promises:
//
//   - Hostile modules end as the table says (TestHostileModulesEndWithTheirReason,
//     TestADeniedConnectionIsReported, TestACallThatComputesUntilItsDeadlineFailsNoTarget).
//   - A resource shortage of this machine is blamed neither on the target nor on the plugin
//     (TestALackOfDescriptorsOrPortsFailsNoTarget), and settings that could not be checked during the
//     shortage are checked again (TestSettingsThatCannotBeCheckedNowAreCheckedAgain).
//   - "Others had the processors" means that a call could not compute for a notable part of its
//     time (TestACallWithoutAProcessorIsStarved, TestACallThatTheSystemDoesNotRunIsStarved).
//   - A runaway call is blamed, even next to other runaway calls and calls that return, and even if
//     a single long instruction runs (TestCallsThatRunAwayTogetherAreBlamedInTheEnd,
//     TestALongInstructionDoesNotDelayItsCall).
//   - A probe whose attempts mostly trap is suspended for a while. The whole plugin is suspended if at
//     least half of its probes, and at least five, trap, or if no instance starts
//     (TestAProbeWhosePluginTrapsTooOftenIsSuspended, TestProbesWithLongPeriodsAreSuspended,
//     TestOneBadTargetDoesNotSuspendThePlugin, TestOnlyAShareOfTheProbesSuspendsThePlugin,
//     TestFailedStartsSuspendThePlugin). Other plugins continue, including those that share the module
//     (TestAPluginIsSuspendedWithoutOthersOfItsModule).
//
// # Time
//
//   - The host counts what a module executes, whatever its code looks like: Load rewrites it
//     (package module). Work that the host does for the module is added
//     (TestCodeThatGoesOnAsksTheHost, TestWhatTakesLongIsPaidFor,
//     TestHostFunctionsThatComputeAreChargedAndKeepTheSlot).
//   - A call that still runs abi.Grace after its deadline is stopped at its next check-in with the
//     host (TestHostileModulesEndWithTheirReason, TestRunawayGuestsAreStopped). Running code checks in
//     again and again (TestCodeThatGoesOnAsksTheHost): "make bench" shows how late a call is stopped.
//   - Calls that compute for a long time take turns on the processors, plugin by plugin
//     (TestPluginsGetSlotsInTurn). On machines with two or more processors they leave one to the
//     engine, even when the host computes for them (TestGuestsThatLetTheHostComputeShareTheSlots,
//     TestAHandshakeComputesWithASlot, TestTheMemoryOfACallIsScannedWithItsSlot). A waiting call
//     occupies no processor (TestNoHostFunctionWaitsWithASlot).
//   - Next to runaway plugins, other plugins make their attempts and the garbage collector runs
//     (TestRunawayGuestsAreStopped, TestOtherProbesRunBesideHostilePlugins), and the verdicts of
//     other probes do not change (TestHostilePluginsDoNotChangeVerdictsOfOtherProbes).
//   - The start of an instance and a check of settings end soon after Limits.Start has elapsed or Close
//     is called (TestAStartThatHadNoProcessorTimeDoesNotSuspendThePlugin,
//     TestRecursionInConfigureIsStopped, TestCloseEndsTheStartsOfInstances). Running attempts continue
//     when Close is called (TestClosingAPluginWaitsForItsAttempts). Attempts share one initialisation
//     (TestStartsShareAnInitialisation); if a check of settings hangs, it is not repeated for each block
//     (TestACheckThatHangsIsMadeOnce).
//
// # Compilation
//
//   - On Linux the memory and time to compile a module are limited
//     (TestAModuleThatTakesTooMuchToCompileBreaksItsPluginOnly, TestALimitIsNamedByItsError), as they are
//     to load it (TestModulesThatTakeTooMuchToLoadAreRejected).
//   - On Linux this process never compiles modules itself (TestNothingIsCompiledInThisProcess): not
//     when the machine lacks resources (TestAPluginIsCompiledAfterAShortage), nor when plugins share
//     the cache (TestPluginsShareTheirCompiledCode). Compilation needs no directory for temporary
//     files (TestAPluginIsCompiledWithoutAPlaceForTemporaryFiles).
//   - Modules that a runtime could read in two ways are rejected, so that no code escapes the count
//     (TestTypesBeyondTheSpecificationAreRejected, TestHiddenCodeIsRejected).
//
// On Linux a child process compiles, with limits that grow with the module. The child is this
// program, started with the argv[0] sonde-compiler; it compiles during the initialization of
// package compiler, before main. Packages that Go initializes earlier are initialized in each child
// too: they should not open files or connections. On other systems, and with Compile.InProcess,
// this process compiles, without limits.
//
// DESIGN.md lists the invariants that span several functions.
//
// # Files
//
//	config.go       Config, Grant and Limits, with their defaults and bounds
//	plugin.go       Plugin: Load, compiling, Close
//	compilation.go  the state of a module's compilation
//	configure.go    Plugin.New, and the module's own check of settings
//	prepared.go     the data that this check prepares for attempts
//	handler.go      Handler: one attempt
//	instances.go    borrowing instances from the pool
//	pool.go         the pool of instances, with a reserve for short attempts
//	breaker.go      suspends a probe after too many errors of its plugin, or the whole plugin
//	result.go       the probe's result from the end of a call
//	reason.go       the reasons that begin with "plugin."
//	stats.go        Stats, for metrics
//	inspect.go      ModuleInfo: describing a module without running it
//
// # Internal packages
//
//	module     reads a module's binary, checks it against package abi, and rewrites it to count the instructions it executes
//	grant      decides which addresses and names a plugin may reach
//	codecache  keeps compiled code in files of a private directory
//	compiler   compiles a module in a child process, within limits
//	settings   checks a handler's settings and writes them as JSON
//	image      creates instances from the state of a module after its initialisation, and resets them
//	sandbox    runs instances and provides their host functions
package wasmhost
