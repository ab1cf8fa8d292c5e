/** The client: commands, and handles on what is followed, over as many connections as that needs. */
import type { Command, CommandPayload, ControlFrameOf, RunState } from "@throughline/protocol";
import type { Effects } from "./commands/effects.ts";
import { type Answer, Outbox } from "./commands/outbox.ts";
import type { ConnectionOptions } from "./connection/connection.ts";
import type { ClosedFor, ConnectionState } from "./connection/lifecycle.ts";
import { ClientClosed } from "./errors.ts";
import { fetchState } from "./fetch-state.ts";
import type { FeedLimits } from "./follow/feed.ts";
import { Follow, type FollowSetup } from "./follow/follow.ts";
import { Ending, RunHandle, SessionHandle } from "./follow/handle.ts";
import type { Gap } from "./follow/item.ts";
import { runBook, sessionBook } from "./follow/state.ts";
import { RunSteering } from "./follow/steering.ts";
import { Store } from "./follow/store.ts";
import { Link, type LinkHooks } from "./link.ts";
import { newId } from "./new-id.ts";
import { type ClientOptions, resolveOptions } from "./options.ts";
import type { From, Position } from "./subscription/ledger.ts";
import type { Consumer, Filter, Subscription } from "./subscription/subscription.ts";
import { CallWatch } from "./tools/call-watch.ts";
import { Executions } from "./tools/executions.ts";
import { Journal } from "./tools/journal.ts";
import { type ClientTools, declared } from "./tools/tool.ts";

/** Of a command: the same id again is the same command, over any connection and after any crash. */
export interface CommandOptions {
  /** `[A-Za-z0-9_-]{1,64}`; without it a random one. */
  id?: string;
  /** Gives up waiting for the answer; the command may take effect all the same. */
  signal?: AbortSignal;
}

export interface FollowOptions {
  /** Where to go on: a handle's `cursor` of earlier. Wins over `from`. */
  cursor?: string;
  /** Without a cursor: the first event (the default), what comes from now on, or the newest snapshot. */
  from?: From;
  /** Whether ephemeral events are wanted (yes). */
  deltas?: boolean;
  /** Called when events are missing that cannot be had any more. An iteration gets the same as an item. */
  onGap?: (gap: Gap) => void;
  /** How much an iteration may be behind (1,024 events, 8 MiB) before the flow is stopped for it. */
  buffer?: Partial<FeedLimits>;
}

export interface StartOptions extends CommandOptions, Omit<FollowOptions, "cursor" | "from"> {
  session: string;
  agent: string;
  /** Any JSON value. */
  input: CommandPayload<"run.start">["input"];
  options?: CommandPayload<"run.start">["options"];
  /** What clients execute, by their schemas; without it the client's own tools. */
  tools?: CommandPayload<"run.start">["tools"];
  attachments?: CommandPayload<"run.start">["attachments"];
}

/** A command without its id. */
export type CommandWithoutId = Command extends infer C
  ? C extends Command
    ? Omit<C, "id">
    : never
  : never;

const BUFFER: FeedLimits = { items: 1_024, bytes: 8 * 1024 * 1024 };

export class Client {
  readonly #options: ConnectionOptions;
  /** The first carries the commands; further ones only what overlaps on it. */
  readonly #links: Link[];
  readonly #primary: Link;
  readonly #outbox: Outbox;
  readonly #connection: Store<ConnectionState>;
  readonly #executions: Executions;
  #closed: ClosedFor | undefined;

  constructor(options: ClientOptions) {
    this.#options = resolveOptions(options);
    this.#executions = new Executions(new Journal(options.storage), this.#options.clock);
    this.#executions.register(options.tools ?? {});
    this.#connection = new Store<ConnectionState>({ name: "idle" });
    this.#outbox = new Outbox({
      clock: this.#options.clock,
      random: this.#options.random,
      reconnect: this.#options.reconnect,
      isOpen: () => this.#primary.isOpen,
      send: (text) => this.#primary.send(text),
      maxFrameBytes: () => this.#primary.maxFrameBytes,
    });
    this.#primary = new Link(this.#options, {
      answer: (frame) => this.#outbox.answer(frame),
      oldestQuestion: () => this.#outbox.oldestQuestion(),
      up: () => this.#outbox.up(),
      down: (code) => this.#outbox.down(code),
      changed: () => this.#connection.set(this.#primary.state),
      ended: (cause) => {
        this.#closed = cause;
        this.#outbox.close(new ClientClosed(cause));
      },
      empty: () => undefined,
    });
    this.#links = [this.#primary];
  }

  /** The state of the connection that carries the commands, as a store to show it from. */
  get connection(): {
    getSnapshot(): ConnectionState;
    subscribe(listener: () => void): () => void;
  } {
    return this.#connection;
  }

  /**
   * Makes a session; resolves with its id. The same `id` again gives the same session.
   *
   * @throws what {@link Client.command} does
   */
  async createSession(
    payload: CommandPayload<"session.create"> = {},
    options: CommandOptions = {},
  ): Promise<string> {
    const id = options.id ?? newId("cmd");
    const answer = await this.#submit({ type: "session.create", id, payload }, options.signal);
    if (answer.type !== "session.created")
      throw new TypeError(`the server answered session.create with ${answer.type}`);
    return answer.session_id;
  }

  /**
   * Starts a run and follows it from its first event. Resolves when the server has stored the start.
   *
   * @throws what {@link Client.command} does
   */
  async start(options: StartOptions): Promise<RunHandle> {
    const { session, agent, input, attachments } = options;
    const own = declared(this.#executions.tools);
    const tools = options.tools ?? (own.length === 0 ? undefined : own);
    const accepted = await this.command(
      {
        type: "run.start",
        session_id: session,
        payload: {
          agent,
          input,
          ...(options.options === undefined ? {} : { options: options.options }),
          ...(tools === undefined ? {} : { tools }),
          ...(attachments === undefined ? {} : { attachments }),
        },
      },
      options,
    );
    if (accepted.run_id === undefined)
      throw new TypeError("the server accepted run.start without naming the run");
    return this.#followRun(session, accepted.run_id, options);
  }

  /**
   * Follows a run, or without `run` all runs of a session; at once, whether there is a connection or not.
   *
   * @throws {ClientClosed}
   */
  follow(what: { session: string; run: string } & FollowOptions): RunHandle;
  follow(what: { session: string; run?: never } & FollowOptions): SessionHandle;
  follow(what: { session: string; run?: string } & FollowOptions): RunHandle | SessionHandle {
    if (this.#closed !== undefined) throw new ClientClosed(this.#closed);
    const { session, run } = what;
    if (run !== undefined) return this.#followRun(session, run, what);
    const follow = new Follow({
      ...this.#setup({ session }, what),
      book: sessionBook(session),
      isEnd: () => false,
    });
    const { effects, store } = follow.shown;
    const steer = (id: string): RunSteering =>
      this.#steer(session, id, effects, () => store.getSnapshot().runs[id]);
    follow.shown.calls = new CallWatch(this.#executions, steer, () =>
      Object.values(store.getSnapshot().runs),
    );
    return new SessionHandle(follow, steer);
  }

  /**
   * Further tools that this client executes, for the runs that it starts and for those that it follows,
   * in the calls that it hears of from now on.
   */
  tools(tools: ClientTools): void {
    this.#executions.register(tools);
  }

  /**
   * Sends a command and resolves when the server has stored it. While there is no connection it waits;
   * after a loss it is sent again under the same id. A refusal that may pass (`unavailable`) is tried
   * again for a while. What the run makes of it comes as an event with `reply_to`: a handle's methods
   * wait for that.
   *
   * @throws {CommandRejected} refused for good
   * @throws {OutboxFull} 1,000 commands are waiting for their answers
   * @throws {ClientClosed} the client was closed before the answer came
   */
  async command(
    command: CommandWithoutId,
    options: CommandOptions = {},
  ): Promise<ControlFrameOf<"command.accepted">> {
    const id = options.id ?? newId("cmd");
    const answer = await this.#submit({ ...command, id }, options.signal);
    if (answer.type !== "command.accepted")
      throw new TypeError(`the server answered ${command.type} with ${answer.type}`);
    return answer;
  }

  /** Closes all connections and ends all handles. Runs go on. */
  close(): void {
    for (const link of [...this.#links]) link.stop();
  }

  #submit(command: Command, signal: AbortSignal | undefined): Promise<Answer> {
    this.#primary.start();
    return this.#outbox.submit(command, signal);
  }

  #followRun(session: string, run: string, options: FollowOptions): RunHandle {
    const ending = new Ending();
    const follow = new Follow({
      ...this.#setup({ session, run }, options),
      book: runBook(run),
      isEnd: ending.isEnd,
    });
    const { effects, store } = follow.shown;
    const steering = this.#steer(session, run, effects, store.getSnapshot);
    follow.shown.calls = new CallWatch(
      this.#executions,
      () => steering,
      () => [store.getSnapshot()],
    );
    return new RunHandle(follow, ending, steering);
  }

  #steer(
    session: string,
    run: string,
    effects: Effects,
    state: () => RunState | undefined,
  ): RunSteering {
    return new RunSteering(session, run, {
      effects,
      state,
      command: (command, options) => this.command(command, options),
      follow: (next) => this.#followRun(session, next, {}),
    });
  }

  #setup(filter: Filter, options: FollowOptions): Omit<FollowSetup<never>, "book" | "isEnd"> {
    const { cursor, from = "start", deltas = true, onGap, buffer } = options;
    const position: Position = cursor === undefined ? { from } : { cursor };
    return {
      filter,
      position,
      deltas,
      onGap,
      limits: { ...BUFFER, ...buffer },
      clock: this.#options.clock,
      random: this.#options.random,
      reconnect: this.#options.reconnect,
      fetchState: (path, signal) => fetchState(this.#options, path, signal),
      place: (consumer) => this.#place(consumer),
    };
  }

  /** Where nothing overlaps with it: the first connection that has room, else a further one. */
  #place(consumer: Consumer): Subscription {
    if (this.#closed !== undefined) throw new ClientClosed(this.#closed);
    const link = this.#links.find((each) => each.hasRoomFor(consumer.filter)) ?? this.#addLink();
    link.start();
    return link.add(consumer);
  }

  #addLink(): Link {
    const gone = (): void => {
      const at = this.#links.indexOf(link);
      if (at >= 0) this.#links.splice(at, 1);
    };
    const hooks: LinkHooks = {
      answer: () => false,
      oldestQuestion: () => undefined,
      up: () => undefined,
      down: () => undefined,
      changed: () => undefined,
      ended: gone,
      empty: () => link.stop(),
    };
    const link = new Link(this.#options, hooks);
    this.#links.push(link);
    return link;
  }
}

/** @throws {TypeError} on options that cannot work */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}
