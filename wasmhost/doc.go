// Package wasmhost runs plugins: probe handlers that are WebAssembly modules. A plugin is
// one file, written in any language, that follows package abi.
//
// Load checks a module and compiles it in the background; Plugin.New makes a handler for
// one set of settings. All handlers of a plugin share its instances. An attempt borrows an
// instance, runs it and returns it. When all are busy, attempts wait in order of arrival,
// those first whose target answered last time, for at most half of their timeout: an attempt
// that got its instance too late would blame the target (TestInstancesAreGrantedInTheOrderOfArrival,
// TestFastCallersGetInstancesFirst, TestACallerThatStopsWaitingIsSkipped).
//
// What follows are promises to operators, each with the tests that hold it.
//
// # Pristine state
//
// The first instance of a plugin initialises itself: its data, its start function, and
// _initialize. What it then has in its memory and its globals is the image of the plugin.
// Each attempt, and each check of settings, starts from the image, whatever was before:
//
//   - Nothing that one target or probe has sent, or that its settings contain, is in the
//     memory of a later attempt (TestASecretOfOneTargetIsInNoLaterMemory).
//   - A plugin remembers what it reports as state, and nothing else
//     (TestStateIsTheOnlyMemoryBetweenAttempts). What its check of settings prepares
//     (abi.OutputPrepared) is in the attempts with the same settings, and in no others
//     (TestAttemptsGetWhatWasPreparedForTheirSettings); it is counted as the plugin's memory
//     (TestWhatIsPreparedIsBounded).
//   - An attempt that was stopped, has trapped or has exited does not affect a later one
//     (TestAnInstanceIsGoodAfterItWasKilled).
//   - Memory that an attempt has grown is given back (TestGrownMemoryIsGivenBack).
//   - Concurrent attempts share no memory (TestConcurrentInstancesShareNothing).
//   - The image has no connections and no target's data, since a module that initialises
//     itself is given neither a target nor settings, and cannot dial
//     (TestAnInitialisationSeesNoTarget). Random numbers of the host differ between attempts
//     (TestRandomNumbersDifferBetweenAttempts).
//
// The image cannot contain tables that change, references that code makes, passive data segments, and globals
// that are references or vectors: a module with these is rejected (TestAModuleWhoseStateCannotBeCopiedIsRejected).
// Others initialise themselves once, one instance at a time (TestAModuleIsInitialisedOnce).
//
// # What a plugin can do
//
//   - By default a plugin can compute, and connect to the probe's own target: its address, and
//     the ports that the operator has written (TestOnlyTheTargetsPortsAreGrantedByDefault,
//     TestADefaultPortIsNotGranted).
//   - Grant allows more. Each address is checked right before it is dialled; those of metadata
//     services, link-local and multicast addresses need an entry of their own
//     (TestAddressesAreGranted, TestATargetsNameNeverGrantsMetadata).
//   - A plugin can look up the names that are granted, and no others
//     (TestNamesAreLookedUpOnlyWhenGranted, TestTheHostResolvesNamesForAPlugin).
//   - It sees the environment variables that are granted, and no others
//     (TestAPluginSeesGrantedVariablesOnly).
//   - It sees no files (TestAPluginSeesNoFiles), and no connections of other attempts
//     (TestUnknownDescriptorsAreRejected).
//   - Limits bound its memory, time, traffic, log and host calls
//     (TestHostileModulesEndWithTheirReason, TestFuelIsLimited, TestTheRecordsOfALogAreBounded).
//   - Whatever it passes to the host, the host goes on (TestInvalidArgumentsAreHandled).
//   - An attempt that is cancelled in any of its host calls leaves nothing
//     (TestAnAttemptIsCancelledAtEachHostCall, TestACancelledAttemptIsUnknown).
//   - What it reports is cleaned before people see it (TestOutputOfAPluginIsCleaned).
//
// The host dials, makes TLS handshakes and resolves names on a plugin's behalf.
//
// A plugin can hold connections between attempts. When a held connection ends, its probe
// is attempted again at once (Handler.ProbeWaking,
// TestTheEndOfAHeldConnectionChangesTheVerdictBeforeTheNextPeriod). One goroutine watches all of a
// plugin's held connections; Limits.Held bounds their number (TestHeldConnectionsAreBounded).
//
// # Memory
//
//   - The instances of all plugins together use no more than SetTotalMemory allows, except for
//     one instance, and the image, of each plugin. That includes their stacks, what the runtime takes for tables,
//     globals, segments and references, and connections (TestTheSumIsNeverExceeded,
//     TestGuestsGrowWithinTheBudget, TestWhatTheRuntimeTakesForAnInstanceIsCounted,
//     TestTheStackOfEachFunctionIsCounted,
//     TestConnectionsAreCounted).
//   - When more than half of that is used, a call that waits is counted by what it has changed of its
//     memory (TestACallThatWaitsIsCountedByWhatItHasChanged,
//     TestMoreCallsWaitThanTheirMemoriesHaveRoom; Linux). When it computes again, it may exceed the
//     sum by the rest; no more calls compute at once than there are slots.
//   - A plugin can use its share of the memory, also if others have filled it before
//     (TestAPluginLeavesTheSharesOfOthers, TestIdleInstancesMakeRoomForAnotherPlugin). It holds up
//     no others meanwhile (TestNoCallClosesInstancesWithASlot).
//   - Names that a module or a certificate contains take little memory and time, however long they are
//     (TestLongNamesTakeNoMemoryWhenACallTraps, TestAHugeNameOfACertificateTakesLittleMemory).
//   - Unbounded recursion is stopped when its stack has more than 8 MiB. Until the host looks at
//     the stack again it may be larger, in as many calls as compute at the same time
//     (TestTheStackIsBounded).
//
// # Errors
//
// Who is to blame for a result follows from how the call of sonde_run has ended. The first row that applies
// decides (TestTheEndOfACallSaysWhoIsToBlame). Of a fault, the outcome is unknown unless Config.OnTrap says failure,
// and it counts for the suspension of the probe and of the plugin:
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
// The tests hold further promises:
//
//   - Modules that are made to fail end in that way (TestHostileModulesEndWithTheirReason,
//     TestADeniedConnectionIsReported, TestACallThatComputesUntilItsDeadlineFailsNoTarget).
//   - A shortage of this machine is neither the target's fault nor the plugin's
//     (TestALackOfDescriptorsOrPortsFailsNoTarget), nor that of settings that cannot be checked
//     meanwhile (TestSettingsThatCannotBeCheckedNowAreCheckedAgain).
//   - Others have the processors if a call could not use a notable part of its time
//     (TestACallWithoutAProcessorIsStarved, TestACallThatTheSystemDoesNotRunIsStarved).
//   - Who runs away is blamed, also beside others that do and others that return, or by one long
//     instruction (TestCallsThatRunAwayTogetherAreBlamedInTheEnd,
//     TestALongInstructionDoesNotDelayItsCall).
//   - A probe whose attempts mostly trap is suspended for a while, and the whole plugin if half
//     of its probes trap, five or more, or if no instance starts
//     (TestAProbeWhosePluginTrapsTooOftenIsSuspended, TestProbesWithLongPeriodsAreSuspended,
//     TestOneBadTargetDoesNotSuspendThePlugin,
//     TestOnlyAShareOfTheProbesSuspendsThePlugin, TestFailedStartsSuspendThePlugin). Other plugins go on,
//     also those of the same module (TestAPluginIsSuspendedWithoutOthersOfItsModule).
//
// # Time
//
//   - The host counts what a module executes, whatever its code looks like: Load rewrites it
//     (package module). It adds what the host computes for the module (TestCodeThatGoesOnAsksTheHost,
//     TestWhatTakesLongIsPaidFor, TestHostFunctionsThatComputeAreChargedAndKeepTheSlot).
//   - A call that is still running abi.Grace after its deadline is stopped when the host is asked
//     next (TestHostileModulesEndWithTheirReason, TestRunawayGuestsAreStopped). Code that goes on asks
//     it again and again (TestCodeThatGoesOnAsksTheHost): "make bench" shows how late it is stopped.
//   - Calls that compute for long share the processors in turn, plugin by plugin
//     (TestPluginsGetSlotsInTurn). Where there are two processors or more they leave one to the
//     engine, also when the host computes for them
//     (TestGuestsThatLetTheHostComputeShareTheSlots, TestAHandshakeComputesWithASlot,
//     TestTheMemoryOfACallIsScannedWithItsSlot). A call that
//     waits takes none from others (TestNoHostFunctionWaitsWithASlot).
//   - Beside plugins that run away, other plugins make their attempts and the garbage collector runs
//     (TestRunawayGuestsAreStopped, TestOtherProbesRunBesideHostilePlugins), and no verdict of other
//     probes changes (TestHostilePluginsDoNotChangeVerdictsOfOtherProbes).
//   - The start of an instance and a check of settings end soon after Limits.Start has passed, or
//     Close is called (TestAStartThatHadNoProcessorTimeDoesNotSuspendThePlugin,
//     TestRecursionInConfigureIsStopped, TestCloseEndsTheStartsOfInstances). Attempts that run go on when
//     Close is called (TestClosingAPluginWaitsForItsAttempts). Attempts share one
//     initialisation (TestStartsShareAnInitialisation), and blocks of a module that hangs its check
//     (TestACheckThatHangsIsMadeOnce).
//
// # Compilation
//
//   - On Linux no module takes more than a limited amount of the machine's memory and time to compile
//     (TestAModuleThatTakesTooMuchToCompileBreaksItsPluginOnly, TestALimitIsNamedByItsError), nor to load
//     (TestModulesThatTakeTooMuchToLoadAreRejected).
//   - On Linux this process never compiles by itself (TestNothingIsCompiledInThisProcess): not when
//     the machine lacks resources (TestAPluginIsCompiledAfterAShortage), nor when plugins share the
//     cache (TestPluginsShareTheirCompiledCode). It needs no directory for that
//     (TestAPluginIsCompiledWithoutAPlaceForTemporaryFiles).
//   - What a runtime could read in two ways is rejected, so that no code hides from the count
//     (TestTypesBeyondTheSpecificationAreRejected, TestHiddenCodeIsRejected).
//
// On Linux a child process compiles, with limits that grow with the module. The child is this
// program, started with the argv[0] sonde-compiler; it compiles in the initialization of package
// compiler, before main. The initialization of packages that Go initializes earlier runs in each
// child: it should not open files or connect. On other systems, and with Compile.InProcess, this
// process compiles, without limits.
//
// DESIGN.md lists the invariants that no single function shows.
//
// # Files
//
//	config.go       Config, Grant and Limits, with their defaults and bounds
//	plugin.go       Plugin: Load, compiling, Close
//	compilation.go  whether the module is compiled
//	configure.go    Plugin.New, and the module's own check of settings
//	prepared.go     what that check has prepared for attempts
//	handler.go      Handler: one attempt
//	instances.go    borrowing instances from the pool
//	pool.go         the pool of instances, with a reserve for attempts that end soon
//	breaker.go      suspends a probe after too many errors of its plugin, or the whole plugin
//	result.go       what the end of a call means for the probe
//	reason.go       the reasons that begin with "plugin."
//	stats.go        Stats, for metrics
//	inspect.go      ModuleInfo: describing a module without running it
//
// # Internal packages
//
//	module     reads a module's binary, checks it against package abi, and rewrites it so that what it executes is counted
//	grant      decides which addresses and names a plugin may reach
//	codecache  keeps compiled code in files of a private directory
//	compiler   compiles a module in a child process, within limits
//	settings   checks a handler's settings and writes them as JSON
//	pool       hands out a bounded number of instances, with a reserve
//	breaker    suspends probes, and plugins, after too many errors
//	image      makes instances from the state that a module has after its initialisation, and resets them
//	sandbox    runs instances and provides their host functions
package wasmhost
